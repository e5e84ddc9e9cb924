/* What a kernel of the machine's own is given with the run spec: time, settings, network, root, volumes, swap. */
#ifndef OUTFIT_H
#define OUTFIT_H

#include "failure.h"
#include "spec.h"

int outfit_put_on(const struct spec *spec, struct failure *why); /* nothing to do with the host's kernel */
int clock_set(uint64_t unix_ns, struct failure *why);

#endif

/* An exec request laid over a process of the machine: what it leaves out is as that one has it. */
#ifndef MERGE_H
#define MERGE_H

#include "spec.h"

bool merge_request(struct command *command, struct cursor *request, const struct spec *spec);

#endif

/* The child's half of spawn: from a fork of the pilot to the user's program. Whatever is hostile in the machine's
 * files is met here, where only the one command can suffer. */
#ifndef BECOME_H
#define BECOME_H

#include "spec.h"

_Noreturn void become(const struct command *command, const int stdio[3], int status, const struct spec *spec);

#endif

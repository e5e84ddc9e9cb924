/* Whether the memory limit is behind an end, read from our own control group or kernel. */
#ifndef MEMORY_H
#define MEMORY_H

#include <stdbool.h>
#include <stdint.h>

/* As the worker judges a machine's: something was killed for its memory since the last question, and the end is
 * neither a clean nor an asked-for one. */
bool memory_is_to_blame(uint32_t code, uint32_t signal);

#endif

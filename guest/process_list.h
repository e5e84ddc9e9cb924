/* The machine's processes, read from /proc: one frame each, and a last one. Bounded. */
#ifndef PROCESS_LIST_H
#define PROCESS_LIST_H

#include <stdint.h>

struct peer;

void list_processes(struct peer *peer, uint32_t channel);

#endif

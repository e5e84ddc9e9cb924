/* Whose container a process is of, told by what all its descendants inherit, cannot gain and have no use for: the limit
 * of real-time cpu, which without real-time scheduling limits nothing. Session, user and parent they may change. */
#ifndef CONTAINER_MARK_H
#define CONTAINER_MARK_H

#include <sys/types.h>

void mark_self(unsigned mark); /* 0: leave it unmarked */
unsigned mark_of(pid_t pid);   /* 0: none */

#endif

/* The timer that wakes the processors, as this kernel measured it. */
#ifndef TIMER_H
#define TIMER_H

#include <stdbool.h>

/* Whether it has one, of at least half and at most five quarters of this frequency. True where a kernel does not tell. */
bool timer_is_about(unsigned long khz);

#endif

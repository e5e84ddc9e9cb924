/* The one loop: what to watch is declared anew each turn, so nothing can be watched after its owner is gone.
 *
 * A handler may close descriptors and open others within a turn; it checks that `fd` is still the one it holds. */
#ifndef LOOP_H
#define LOOP_H

#include <stdint.h>

typedef void (*ready_fn)(void *owner, int fd, short events);

void loop_watch(int fd, short events, ready_fn ready, void *owner);
void loop_wake_at(int64_t deadline_ms); /* this turn ends at this moment of now_ms() at the latest */
void loop_turn(void);                   /* wait, call the handlers of what is ready, forget the watches */

int64_t now_ms(void);      /* monotonic */
uint64_t unix_ns(void);    /* wall clock */

#endif

/* File systems held still for a copy of their disk: until they are let go, their time is up, or whoever asked is gone. */
#ifndef HOLD_H
#define HOLD_H

#include <stdint.h>

struct mount;
struct peer;

void hold_begin(struct peer *peer, uint32_t channel, struct mount *mount, uint32_t timeout_ms);
void hold_end(struct peer *peer, uint32_t channel, struct mount *mount);
void holds_watch(void); /* let go whose time is up */
void holds_lost(const struct peer *peer);
void holds_end(void); /* nobody who is killed could end while it waits for one */

#endif

/* File systems held still for a copy of their disk: until they are let go, their time is up, or whoever asked is gone. */
#ifndef FREEZE_H
#define FREEZE_H

#include <stdint.h>

struct mount;
struct peer;

void freeze_begin(struct peer *peer, uint32_t channel, struct mount *mount, uint32_t timeout_ms);
void freeze_end(struct peer *peer, uint32_t channel, struct mount *mount);
void freezes_watch(void); /* let go whose time is up */
void freezes_lost(const struct peer *peer);
void freezes_end(void); /* nobody who is killed could end while it waits for one */

#endif

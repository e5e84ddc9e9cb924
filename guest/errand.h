/* Work that a disk may make slow, done by a child of ours: nobody else waits for it. */
#ifndef ERRAND_H
#define ERRAND_H

#include <stdbool.h>
#include <stdint.h>

#include "failure.h"
#include "mounts.h"

struct peer;

typedef int (*errand_fn)(const struct mount *mount, struct failure *why); /* 0, or -1 and why */
/* `why` is NULL when it is done; `peer` is NULL when the connection that asked has ended. */
typedef void (*errand_done_fn)(struct peer *peer, uint32_t channel, struct mount *mount, const struct failure *why);

enum { ERRANDS_MAX = 16 };

/* False: too many are under way. */
bool errand_send(struct peer *peer, uint32_t channel, struct mount *mount, errand_fn errand, errand_done_fn done);
void errands_watch(void);
void errands_lost(const struct peer *peer);

#endif

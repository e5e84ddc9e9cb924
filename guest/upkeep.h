/* What is asked of a running machine with a kernel of its own: its clock, its file systems, its memory. Version 3. */
#ifndef UPKEEP_H
#define UPKEEP_H

#include "peer.h"

bool upkeep_take(struct peer *peer, enum frame type, uint32_t channel, struct cursor *payload); /* false: malformed */

#endif

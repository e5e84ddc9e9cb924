/* What each frame of a greeted peer asks for. */
#ifndef DISPATCH_H
#define DISPATCH_H

#include "peer.h"

bool dispatch(struct peer *peer, enum frame type, uint32_t channel, struct cursor *payload); /* false: not allowed */

#endif

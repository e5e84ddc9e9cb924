/* Which process listens where: /proc/net/tcp and tcp6 joined with the processes' descriptors. Bounded. */
#ifndef SOCKETS_H
#define SOCKETS_H

#include <sys/types.h>

#include "wire.h"

void sockets_read(void);
void sockets_put(struct buffer *payload, pid_t pid); /* a list of strings "tcp6 [::]:8080" */

#endif

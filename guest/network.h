/* The network of a machine with a kernel of its own, told to the kernel by netlink (RFC 3549). */
#ifndef NETWORK_H
#define NETWORK_H

#include "failure.h"
#include "spec.h"

int network_begin(const struct link *link, struct failure *why); /* loopback, and the link when there is one */

#endif

/* A disk as swap space, made anew: nothing in it is worth keeping. */
#ifndef SWAP_H
#define SWAP_H

#include "failure.h"

int swap_begin(const char *disk, struct failure *why);

#endif

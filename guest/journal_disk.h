/* The disk of a machine with a kernel of its own on which journal and output ring are: bounded, and the host's at once. */
#ifndef JOURNAL_DISK_H
#define JOURNAL_DISK_H

#include "place.h"

/* 0, or -1 with errno; EEXIST when it has been written before: this machine has ended already, and was started again
 * from within. */
int journal_disk_open(const char *disk, struct place *journal, struct place segments[2]);

#endif

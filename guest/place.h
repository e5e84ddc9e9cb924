/* A place to write records to, one after the other: a file, or a part of a raw disk.
 *
 * A disk is written past its page cache, in whole blocks: what was added waits in a window of memory until it is full
 * or `place_write` is called. What follows the last record is zero up to the end of its block. */
#ifndef PLACE_H
#define PLACE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

enum { PLACE_BLOCK = 4096, PLACE_WINDOW = 65536 };

struct place {
    int fd;          /* -1: nowhere, nothing is kept */
    size_t end;      /* where the next record goes */
    uint8_t *window; /* of a disk: PLACE_WINDOW bytes, aligned to a block; NULL: a file */
    off_t start;     /* of the part, on its disk */
    size_t size;
    size_t base;     /* where the window begins, in the part */
    size_t written;  /* what is before is on the disk */
    size_t reached;  /* nothing was ever added past this, since the window moved */
};

void place_on_file(struct place *place, int fd);
void place_on_disk(struct place *place, int fd, off_t start, size_t size, uint8_t *window);

bool place_add(struct place *place, const struct iovec *parts, int count); /* all of it, or nothing */
void place_write(struct place *place);
void place_sync(struct place *place); /* written, and safe from a loss of power */
void place_reserve(const struct place *place, size_t bytes); /* from the start; a disk has them already */

void place_empty(struct place *place);

/* Go on from an earlier end; nothing before it is written again. On a disk it is in the window, or 0. */
void place_return(struct place *place, size_t end);
void place_cut(struct place *place); /* nothing after the end counts */

#endif

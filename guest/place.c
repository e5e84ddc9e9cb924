#include "place.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "stages.h"

void place_on_file(struct place *place, int fd) {
    *place = (struct place){.fd = fd};
    if (fd < 0) return;
    (void)fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_APPEND); /* else every write would go to the end */
    off_t end = lseek(fd, 0, SEEK_END);
    place->end = end < 0 ? 0 : (size_t)end;
}

void place_on_disk(struct place *place, int fd, off_t start, size_t size, uint8_t *window) {
    *place = (struct place){.fd = fd, .start = start, .size = size, .window = window};
}

/* --- a disk --------------------------------------------------------------------------------------------------- */

/* An error loses what it could not write: there is nobody to tell, and the workload never waits for its output. */
void place_write(struct place *place) {
    if (!place->window || place->written == place->end) return;
    size_t from = (place->written - place->base) / PLACE_BLOCK * PLACE_BLOCK, end = place->end - place->base;
    size_t to = (end + PLACE_BLOCK - 1) / PLACE_BLOCK * PLACE_BLOCK;
    memset(place->window + end, 0, to - end);
    stage_pause();
    (void)!pwrite(place->fd, place->window + from, to - from, place->start + (off_t)(place->base + from));
    stage_go_on();
    place->written = place->end;
}

static void add_to_window(struct place *place, const uint8_t *bytes, size_t length) {
    while (length > 0) {
        size_t used = place->end - place->base, room = PLACE_WINDOW - used;
        if (room == 0) {
            place_write(place);
            place->base = place->reached = place->end;
            continue;
        }
        size_t part = length < room ? length : room;
        memcpy(place->window + used, bytes, part);
        place->end += part;
        bytes += part;
        length -= part;
    }
    if (place->end > place->reached) place->reached = place->end;
}

/* --- both ----------------------------------------------------------------------------------------------------- */

/* To a file in one write, so a reader sees all or a torn tail; what could not be written is written over by the next. */
bool place_add(struct place *place, const struct iovec *parts, int count) {
    size_t length = 0;
    for (int i = 0; i < count; i++) length += parts[i].iov_len;
    if (place->fd < 0) return false;
    if (!place->window) {
        bool all = pwritev(place->fd, parts, count, (off_t)place->end) == (ssize_t)length;
        if (all) place->end += length;
        return all;
    }
    if (length > place->size - place->end) return false;
    for (int i = 0; i < count; i++) add_to_window(place, parts[i].iov_base, parts[i].iov_len);
    return true;
}

void place_sync(struct place *place) {
    place_write(place);
    if (place->fd >= 0) (void)fdatasync(place->fd);
}

void place_reserve(const struct place *place, size_t bytes) {
    if (place->fd >= 0 && !place->window) (void)fallocate(place->fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)bytes);
}

void place_return(struct place *place, size_t end) {
    place->end = end;
    if (end < place->base) place->base = place->reached = 0;
    if (place->written > end) place->written = end;
}

/* On a disk, what was there is left: records of the ring tell by their position that they are older. */
void place_empty(struct place *place) {
    place_return(place, 0);
    if (!place->window && place->fd >= 0) (void)!ftruncate(place->fd, 0);
}

/* On a disk, what is new and the zeros in the place of what was longer go in one write. */
void place_cut(struct place *place) {
    if (!place->window) {
        if (place->fd >= 0) (void)!ftruncate(place->fd, (off_t)place->end);
        return;
    }
    size_t end = place->end;
    memset(place->window + (end - place->base), 0, place->reached - end);
    place->end = place->reached;
    place_write(place);
    place->end = place->written = place->reached = end;
}

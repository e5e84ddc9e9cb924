#include "journal_disk.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdalign.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { JOURNAL = 65536 };

static alignas(PLACE_BLOCK) uint8_t journal_window[PLACE_WINDOW];
static alignas(PLACE_BLOCK) uint8_t ring_window[PLACE_WINDOW]; /* only one segment is written at a time */

static int was_used(int fd) {
    if (pread(fd, journal_window, PLACE_BLOCK, 0) != PLACE_BLOCK) return -1;
    for (size_t i = 0; i < PLACE_BLOCK; i++)
        if (journal_window[i]) return 1;
    return 0;
}

int journal_disk_open(const char *disk, struct place *journal, struct place segments[2]) {
    uint64_t size = 0;
    int fd = open(disk, O_RDWR | O_DIRECT | O_CLOEXEC);
    if (fd < 0 || ioctl(fd, BLKGETSIZE64, &size) < 0) return -1;
    int used = was_used(fd);
    if (used > 0) errno = EEXIST;
    if (used != 0) return -1;
    if (size < JOURNAL + 2 * PLACE_BLOCK) {
        errno = ENOSPC;
        return -1;
    }
    size_t half = (size_t)(size - JOURNAL) / 2 / PLACE_BLOCK * PLACE_BLOCK;
    place_on_disk(journal, fd, 0, JOURNAL, journal_window);
    place_on_disk(&segments[0], fd, JOURNAL, half, ring_window);
    place_on_disk(&segments[1], fd, (off_t)(JOURNAL + half), half, ring_window);
    return 0;
}

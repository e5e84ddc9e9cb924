#include "swap.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/swap.h>
#include <unistd.h>

#include "disk.h"
#include "wire.h"

enum { BOOT_BITS = 1024, VERSION_1 = 1, LEAST_PAGES = 10 };

/* The header of Linux's swap format: its first page, with a version, the last page's number and a signature. */
static int make(const char *path) {
    static const char signature[] = "SWAPSPACE2";
    size_t page = (size_t)sysconf(_SC_PAGESIZE), length = sizeof signature - 1;
    uint64_t size = 0;
    uint8_t *header = calloc(1, page);
    int fd = open(path, O_RDWR | O_CLOEXEC), result = -1;
    if (header && fd >= 0 && ioctl(fd, BLKGETSIZE64, &size) == 0 && size / page >= LEAST_PAGES) {
        store_number(header + BOOT_BITS, VERSION_1, 4);
        store_number(header + BOOT_BITS + 4, size / page - 1, 4);
        memcpy(header + page - length, signature, length);
        if (pwrite(fd, header, page, 0) == (ssize_t)page) result = 0;
    }
    if (fd >= 0) close(fd);
    free(header);
    return result;
}

int swap_begin(const char *disk, struct failure *why) {
    const char *path = disk_path(disk);
    if (!path) return fail(why, ENODEV, "disk", disk);
    return make(path) < 0 || swapon(path, 0) < 0 ? fail(why, errno, "swap on disk", disk) : 0;
}

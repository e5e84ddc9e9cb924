/* Files into and out of a machine, by a child of ours in the machine's or the container's own root: no program of the
 * image is needed, and no link leads anywhere else. PROTOCOL.md has the copy stream. */
#ifndef COPY_H
#define COPY_H

#include "spec.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { COPY_VERSION = 1, COPY_PATH_MAX = 4096, COPY_PART_MAX = 64 << 10, COPY_DEPTH_MAX = 200 };

enum copy_record { COPY_ENTRY = 1, COPY_DATA = 2, COPY_DONE = 3, COPY_PASSED_OVER = 4, COPY_CLOSE = 5 };
enum copy_kind { COPY_FILE = 1, COPY_DIRECTORY = 2, COPY_SYMLINK = 3 };

struct copy_entry {
    uint8_t kind;
    uint32_t mode, uid, gid;
    int64_t mtime_ns;
    uint64_t size;
    char path[COPY_PATH_MAX];   /* below what is copied; "": that itself */
    char target[COPY_PATH_MAX]; /* of a symbolic link */
};

/* Between stdin or stdout and the machine's files; what is wrong goes to stderr. Descriptors but the first three are
 * closed; `status` says by its end that it has begun. */
_Noreturn void copy_run(enum copy copy, char **argv, int status);

int copy_pack(const char *source);                                       /* exit status */
int copy_unpack(const char *destination, const char *name, bool owners); /* exit status */

/* Says what is wrong, errno's word where `what` is NULL; 1. */
static inline int copy_error(const char *path, const char *what) {
    fprintf(stderr, "%s: %s\n", path, what ? what : strerror(errno));
    return 1;
}

#endif

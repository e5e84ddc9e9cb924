#include "files.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int make_directories(const char *path) {
    char partial[PATH_MAX];
    if (snprintf(partial, sizeof partial, "%s", path) >= (int)sizeof partial) {
        errno = ENAMETOOLONG;
        return -1;
    }
    for (char *slash = partial + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = 0;
        if (mkdir(partial, 0755) < 0 && errno != EEXIST) return -1;
        *slash = '/';
    }
    return mkdir(partial, 0755) < 0 && errno != EEXIST ? -1 : 0;
}

static int make_parents(const char *path) {
    char parent[PATH_MAX];
    size_t length = (size_t)(strrchr(path, '/') - path);
    if (length == 0) return 0;
    if (length >= sizeof parent) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(parent, path, length);
    parent[length] = 0;
    return make_directories(parent);
}

static int write_all(int fd, const uint8_t *bytes, size_t length) {
    while (length > 0) {
        ssize_t written = write(fd, bytes, length);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return -1;
        bytes += written;
        length -= (size_t)written;
    }
    return 0;
}

/* A link, pipe or device in the file's place is replaced: /etc/resolv.conf often is a link to what is not there. */
static int open_fresh(const struct file *file) {
    struct stat about;
    if (lstat(file->path, &about) == 0 && !S_ISREG(about.st_mode) && !S_ISDIR(about.st_mode)) unlink(file->path);
    return open(file->path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
}

static int write_one(const struct file *file) {
    if (make_parents(file->path) < 0) return -1;
    int fd = open_fresh(file);
    if (fd < 0) return -1;
    int result = write_all(fd, file->content, file->length) < 0 || fchmod(fd, file->mode) < 0 ? -1 : 0;
    int error = errno;
    close(fd);
    errno = error;
    return result;
}

int files_write(const struct files *files, struct failure *why) {
    for (size_t i = 0; i < files->count; i++)
        if (write_one(&files->list[i]) < 0) return fail(why, errno, "write", files->list[i].path);
    return 0;
}

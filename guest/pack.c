/* The machine's side of a copy out of it: a tree of files to the copy stream on stdout. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "copy.h"
#include "wire.h"

static struct copy_entry entry;
static uint8_t part[COPY_PART_MAX];

static void put(uint64_t value, size_t width) {
    uint8_t bytes[8];
    store_number(bytes, value, width);
    fwrite(bytes, 1, width, stdout);
}

static void put_text(const char *text) {
    size_t length = strlen(text);
    put(length, 4);
    fwrite(text, 1, length + 1, stdout);
}

static void put_entry(uint8_t kind, const struct stat *about, const char *target) {
    put(COPY_ENTRY, 1);
    put(kind, 1);
    put(about->st_mode & 07777, 4);
    put(about->st_uid, 4);
    put(about->st_gid, 4);
    put((uint64_t)about->st_mtim.tv_sec * 1000000000u + (uint64_t)about->st_mtim.tv_nsec, 8);
    put(kind == COPY_FILE ? (uint64_t)about->st_size : 0, 8);
    put_text(entry.path);
    put_text(target);
}

static void pass_over(const char *why) {
    put(COPY_PASSED_OVER, 1);
    put_text(entry.path);
    put_text(why);
}

/* One stretch that has data; it may have become shorter since it was found. */
static int put_stretch(int fd, off_t at, off_t end) {
    while (at < end && !ferror(stdout)) {
        size_t most = end - at < (off_t)sizeof part ? (size_t)(end - at) : sizeof part;
        ssize_t got = pread(fd, part, most, at);
        if (got < 0) return -1;
        if (got == 0) return 0;
        put(COPY_DATA, 1);
        put((uint64_t)at, 8);
        put((uint64_t)got, 4);
        fwrite(part, 1, (size_t)got, stdout);
        at += got;
    }
    return 0;
}

static int put_data(int fd, off_t size) {
    for (off_t at = 0; at < size;) {
        off_t data = lseek(fd, at, SEEK_DATA);
        if (data < 0 && errno == ENXIO) return 0; /* a hole up to the end */
        if (data < 0) return put_stretch(fd, at, size); /* a file system that knows of no holes */
        off_t hole = lseek(fd, data, SEEK_HOLE);
        off_t end = hole < 0 || hole > size ? size : hole;
        if (put_stretch(fd, data, end) < 0) return -1;
        at = end > at ? end : size;
    }
    return 0;
}

static int pack_file(int parent, const char *name) {
    struct stat about;
    int fd = openat(parent, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0) return -1;
    int result = fstat(fd, &about);
    if (result == 0 && S_ISREG(about.st_mode)) {
        put_entry(COPY_FILE, &about, "");
        result = put_data(fd, about.st_size);
        put(COPY_DONE, 1);
    } else if (result == 0)
        pass_over("changed while it was read");
    close(fd);
    return result;
}

static int pack(int parent, const char *name, int depth);

static int pack_children(DIR *directory, int depth) {
    size_t length = strlen(entry.path);
    int result = 0;
    for (struct dirent *each; result == 0 && !ferror(stdout) && (each = readdir(directory));) {
        if (strcmp(each->d_name, ".") == 0 || strcmp(each->d_name, "..") == 0) continue;
        if (length + strlen(each->d_name) + 2 > sizeof entry.path) {
            errno = ENAMETOOLONG;
            return -1;
        }
        snprintf(entry.path + length, sizeof entry.path - length, "%s%s", length ? "/" : "", each->d_name);
        result = pack(dirfd(directory), each->d_name, depth + 1);
        if (result == 0) entry.path[length] = 0; /* else it says where */
    }
    return result;
}

static int pack_directory(int parent, const char *name, const struct stat *about, int depth) {
    if (depth > COPY_DEPTH_MAX) {
        errno = ELOOP;
        return -1;
    }
    int fd = openat(parent, name, O_RDONLY | O_NOFOLLOW | O_DIRECTORY | O_CLOEXEC);
    DIR *directory = fd < 0 ? NULL : fdopendir(fd);
    if (!directory) return -1;
    put_entry(COPY_DIRECTORY, about, "");
    int result = pack_children(directory, depth);
    closedir(directory);
    return result;
}

static int pack_link(int parent, const char *name, const struct stat *about) {
    ssize_t length = readlinkat(parent, name, entry.target, sizeof entry.target - 1);
    if (length < 0) return -1;
    entry.target[length] = 0;
    put_entry(COPY_SYMLINK, about, entry.target);
    return 0;
}

static int pack(int parent, const char *name, int depth) {
    struct stat about;
    if (fstatat(parent, name, &about, AT_SYMLINK_NOFOLLOW) < 0) return errno == ENOENT && depth > 0 ? 0 : -1;
    if (S_ISDIR(about.st_mode)) return pack_directory(parent, name, &about, depth);
    if (S_ISLNK(about.st_mode)) return pack_link(parent, name, &about);
    if (S_ISREG(about.st_mode)) return pack_file(parent, name);
    pass_over(S_ISFIFO(about.st_mode) ? "a pipe" : S_ISSOCK(about.st_mode) ? "a socket" : "a device");
    return 0;
}

int copy_pack(const char *source) {
    static char buffer[2 * COPY_PART_MAX];
    setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
    fwrite("HKCP", 1, 4, stdout);
    put(COPY_VERSION, 2);
    if (pack(AT_FDCWD, source, 0) < 0) {
        int error = errno;
        (void)fflush(stdout);
        errno = error;
        fprintf(stderr, "%s%s%s: %s\n", source, entry.path[0] ? "/" : "", entry.path, strerror(error));
        return 1;
    }
    put(COPY_CLOSE, 1);
    return fflush(stdout) == 0 && !ferror(stdout) ? 0 : copy_error(source, NULL);
}

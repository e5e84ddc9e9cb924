/* The machine's side of a copy into it: the copy stream on stdin to a tree of files. A file gets its name when it is
 * complete, so whoever ends us leaves none by halves; a link below the destination is never followed. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "copy.h"
#include "wire.h"

static struct copy_entry entry;
static uint8_t part[COPY_PART_MAX];
static bool owners;      /* as the stream has them; else ours */
static char top[PATH_MAX]; /* what the entries are below, once the first is known */

static struct {
    int fd; /* -1: none */
    int parent;
    char temporary[40];
    char name[NAME_MAX + 1];
} file = {.fd = -1, .parent = -1};

/* --- the stream ----------------------------------------------------------------------------------------------- */

static bool take(void *to, size_t length) { return fread(to, 1, length, stdin) == length; }

static bool number(void *value, size_t width) {
    uint8_t bytes[8] = {0};
    if (!take(bytes, width)) return false;
    struct cursor cursor = {.at = bytes, .end = bytes + sizeof bytes};
    uint64_t taken = take_number(&cursor, 8);
    if (width == 1) *(uint8_t *)value = (uint8_t)taken;
    if (width == 4) *(uint32_t *)value = (uint32_t)taken;
    if (width == 8) *(uint64_t *)value = taken;
    return true;
}

static bool text(char to[COPY_PATH_MAX]) {
    uint32_t length;
    if (!number(&length, 4) || length >= COPY_PATH_MAX || !take(to, length + 1)) return false;
    return to[length] == 0 && strlen(to) == length;
}

/* Relative, and without "." and "..". */
static bool is_below(const char *path) {
    while (*path) {
        size_t length = strcspn(path, "/");
        if (length == 0 || length > NAME_MAX || (length == 1 && path[0] == '.') || (length == 2 && path[0] == '.' && path[1] == '.')) return false;
        path += length;
        if (*path == '/' && *++path == 0) return false;
    }
    return true;
}

static bool take_entry(void) {
    return number(&entry.kind, 1) && number(&entry.mode, 4) && number(&entry.uid, 4) && number(&entry.gid, 4) &&
           number(&entry.mtime_ns, 8) && number(&entry.size, 8) && text(entry.path) && text(entry.target) && is_below(entry.path);
}

/* --- where ---------------------------------------------------------------------------------------------------- */

/* As `cp -R` decides: into a directory that is there under its own name, else as the destination says. */
static int find_top(const char *destination, const char *name) {
    struct stat about;
    bool exists = stat(destination, &about) == 0;
    bool into = exists && S_ISDIR(about.st_mode) && name[0];
    size_t length = strlen(destination);
    if (!exists && length && destination[length - 1] == '/' && entry.kind != COPY_DIRECTORY) return copy_error(destination, "no such directory");
    if (exists && !S_ISDIR(about.st_mode) && entry.kind == COPY_DIRECTORY) return copy_error(destination, "is not a directory");
    if (snprintf(top, sizeof top, into ? "%s/%s" : "%s", destination, name) >= (int)sizeof top) return copy_error(destination, "the path is too long");
    for (size_t end = strlen(top); end > 1 && top[end - 1] == '/';) top[--end] = 0;
    return 0;
}

/* The directory that holds an entry, and the entry's name there. -1: it is not there, or a link is on the way. */
static int open_parent(char name[NAME_MAX + 1]) {
    char path[COPY_PATH_MAX], *slash = strrchr(top, '/');
    if (!entry.path[0]) {
        if (snprintf(name, NAME_MAX + 1, "%s", slash ? slash + 1 : top) > NAME_MAX) return -1;
        if (!name[0]) strcpy(name, ".");
        snprintf(path, sizeof path, "%.*s", slash ? (int)(slash - top) + 1 : 1, slash ? top : ".");
        return open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    }
    int at = open(top, O_PATH | O_DIRECTORY | O_CLOEXEC);
    strcpy(path, entry.path);
    char *each = path;
    for (char *next; at >= 0 && (next = strchr(each, '/')); each = next + 1) {
        *next = 0;
        int below = openat(at, each, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        close(at);
        at = below;
    }
    strcpy(name, each);
    return at;
}

static void own(int parent, const char *name) {
    uid_t uid = owners ? entry.uid : getuid();
    gid_t gid = owners ? entry.gid : getgid();
    (void)!fchownat(parent, name, uid, gid, AT_SYMLINK_NOFOLLOW);
}

static void date(int parent, const char *name) {
    struct timespec at = {.tv_sec = (time_t)(entry.mtime_ns / 1000000000), .tv_nsec = entry.mtime_ns % 1000000000};
    struct timespec times[2] = {at, at};
    if (at.tv_nsec >= 0) (void)utimensat(parent, name, times, AT_SYMLINK_NOFOLLOW);
}

/* --- files ---------------------------------------------------------------------------------------------------- */

static void drop_file(void) {
    if (file.fd < 0) return;
    (void)unlinkat(file.parent, file.temporary, 0);
    file.fd = -1;
}

_Noreturn static void interrupted(int signal) {
    drop_file();
    _exit(128 + signal);
}

static int begin_file(int parent, const char *name) {
    snprintf(file.temporary, sizeof file.temporary, ".hawker-copy-%d-%lx", (int)getpid(), (unsigned long)entry.mtime_ns & 0xffffff);
    file.parent = parent;
    snprintf(file.name, sizeof file.name, "%s", name);
    int fd = openat(parent, file.temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) return -1;
    file.fd = fd;
    return ftruncate(fd, (off_t)entry.size);
}

static int take_data(void) {
    uint64_t at;
    uint32_t length;
    if (!number(&at, 8) || !number(&length, 4) || length > sizeof part || file.fd < 0 || at > entry.size || length > entry.size - at ||
        !take(part, length)) {
        errno = EPROTO;
        return -1;
    }
    for (size_t done = 0; done < length;) {
        ssize_t written = pwrite(file.fd, part + done, length - done, (off_t)(at + done));
        if (written < 0 && errno != EINTR) return -1;
        if (written > 0) done += (size_t)written;
    }
    return 0;
}

/* The mode comes last: changing the owner takes the bits of set-user-id. */
static int end_file(void) {
    if (file.fd < 0) return 0;
    own(file.parent, file.temporary);
    int result = fchmod(file.fd, (mode_t)entry.mode);
    date(file.parent, file.temporary);
    if (result == 0) result = renameat(file.parent, file.temporary, file.parent, file.name);
    int error = errno;
    close(file.fd);
    if (result < 0) drop_file();
    file.fd = -1;
    close(file.parent);
    errno = error;
    return result;
}

static int make_directory(int parent, const char *name) {
    struct stat about;
    if (mkdirat(parent, name, 0700) < 0) {
        if (errno != EEXIST) return -1;
        int follow = entry.path[0] ? AT_SYMLINK_NOFOLLOW : 0;
        if (fstatat(parent, name, &about, follow) < 0) return -1;
        errno = ENOTDIR;
        return S_ISDIR(about.st_mode) ? 0 : -1; /* as it is: only what is in it changes */
    }
    own(parent, name);
    return fchmodat(parent, name, (mode_t)entry.mode, 0);
}

static int make_link(int parent, const char *name) {
    struct stat about;
    if (fstatat(parent, name, &about, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISDIR(about.st_mode)) (void)unlinkat(parent, name, 0);
    if (symlinkat(entry.target, parent, name) < 0) return -1;
    own(parent, name);
    date(parent, name);
    return 0;
}

static int make_entry(void) {
    char name[NAME_MAX + 1];
    int parent = open_parent(name), result = -1;
    if (parent < 0) return -1;
    if (entry.kind == COPY_FILE) return begin_file(parent, name);
    errno = EPROTO;
    if (entry.kind == COPY_DIRECTORY) result = make_directory(parent, name);
    if (entry.kind == COPY_SYMLINK) result = make_link(parent, name);
    int error = errno;
    close(parent);
    errno = error;
    return result;
}

static int complain(void) {
    int error = errno;
    drop_file();
    fprintf(stderr, "%s%s%s: %s\n", top, entry.path[0] ? "/" : "", entry.path, strerror(error));
    return 1;
}

static int cut_short(void) {
    drop_file();
    return copy_error(top[0] ? top : "copy", "the copy was cut short");
}

int copy_unpack(const char *destination, const char *name, bool keep_owners) {
    static char buffer[2 * COPY_PART_MAX];
    char magic[6];
    uint8_t record;
    struct sigaction end = {.sa_handler = interrupted};
    sigaction(SIGHUP, &end, NULL);
    sigaction(SIGTERM, &end, NULL);
    sigaction(SIGINT, &end, NULL);
    umask(0);
    setvbuf(stdin, buffer, _IOFBF, sizeof buffer);
    owners = keep_owners;
    if (strchr(name, '/') || strcmp(name, "..") == 0) return copy_error(name, "is no name");
    if (!take(magic, sizeof magic) || memcmp(magic, "HKCP\1", sizeof magic) != 0) return cut_short();
    while (number(&record, 1)) {
        int result = 0;
        if (record == COPY_CLOSE) return file.fd < 0 ? 0 : cut_short();
        if (record == COPY_ENTRY) {
            if (file.fd >= 0 || !take_entry()) return cut_short();
            if (!top[0] && (entry.path[0] || find_top(destination, name) != 0)) return 1;
            result = make_entry();
        } else if (record == COPY_DATA)
            result = take_data();
        else if (record == COPY_DONE)
            result = end_file();
        else
            return cut_short();
        if (result < 0) return complain();
    }
    return cut_short();
}

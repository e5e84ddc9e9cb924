#include "kernel.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "report.h"

enum { AT_RECURSIVE_TREE = 0x8000, AT_WHOLE_FD = 0x1000, TREE_CLONE = 1, FROM_FD = 0x4, TO_FD = 0x40 };
enum { FS_CLOEXEC = 1, FS_FLAG = 0, FS_STRING = 1, FS_CREATE = 6, OPTION_MAX = 256 };
enum { BENEATH_NO_MAGIC = 0x2, BENEATH_IN_ROOT = 0x10 };

int tree_copy(int directory, const char *path, int recursive, const char *called) {
    unsigned flags = TREE_CLONE | O_CLOEXEC | (recursive ? AT_RECURSIVE_TREE : 0) | (*path ? 0 : AT_WHOLE_FD);
    int tree = (int)syscall(SYS_open_tree, directory, path, flags);
    if (tree < 0) fail("copy the mount of", called);
    return tree;
}

void tree_attach(int tree, int directory, const char *path, const char *called) {
    if (syscall(SYS_move_mount, tree, "", directory, path, FROM_FD | (*path ? 0 : TO_FD)) < 0) fail("mount", called);
}

int attributes_change(int tree, const struct attributes *wanted, int recursive) {
    unsigned flags = AT_WHOLE_FD | (recursive ? AT_RECURSIVE_TREE : 0);
    return (int)syscall(SYS_mount_setattr, tree, "", flags, wanted, sizeof *wanted);
}

static int configure(int made, const char *options) {
    char option[OPTION_MAX];
    while (*options) {
        size_t length = strcspn(options, ",");
        if (length >= sizeof option) return errno = ENAMETOOLONG, -1;
        memcpy(option, options, length);
        option[length] = 0;
        options += length + (options[length] == ',');
        char *value = strchr(option, '=');
        if (value) *value++ = 0;
        if (*option && syscall(SYS_fsconfig, made, value ? FS_STRING : FS_FLAG, option, value, 0) < 0) return -1;
    }
    return 0;
}

int filesystem_make(const char *type, const char *source, const char *options, uint64_t attributes) {
    int made = (int)syscall(SYS_fsopen, type, FS_CLOEXEC), mounted = -1;
    if (made < 0) return -1;
    if (syscall(SYS_fsconfig, made, FS_STRING, "source", source, 0) == 0 && configure(made, options) == 0 &&
        syscall(SYS_fsconfig, made, FS_CREATE, NULL, NULL, 0) == 0)
        mounted = (int)syscall(SYS_fsmount, made, FS_CLOEXEC, (unsigned)attributes);
    int error = errno;
    close(made);
    errno = error;
    return mounted;
}

int open_beneath(int root, const char *path, int flags) {
    struct {
        uint64_t flags, mode, resolve;
    } how = {.flags = (unsigned)flags | O_CLOEXEC, .resolve = BENEATH_IN_ROOT | BENEATH_NO_MAGIC};
    for (;;) {
        int fd = (int)syscall(SYS_openat2, root, path, &how, sizeof how);
        if (fd >= 0 || (errno != EAGAIN && errno != EINTR)) return fd;
    }
}

pid_t clone_into(uint64_t flags, int group) {
    enum { INTO_GROUP_BIT = 33 };
    struct {
        uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid, set_tid_size, cgroup;
    } how = {.flags = flags, .exit_signal = SIGCHLD};
    if (group >= 0) {
        how.flags |= 1ULL << INTO_GROUP_BIT;
        how.cgroup = (uint64_t)group;
    }
    return (pid_t)syscall(SYS_clone3, &how, sizeof how);
}

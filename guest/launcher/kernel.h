#pragma once

/* System calls that a C library may not have yet, by what they do here. Each ends the launch when it fails. */

#include <stdint.h>
#include <sys/types.h>

struct attributes {
    uint64_t set, clear, propagation, userns;
};

/* Flags of mounts: those of mount_setattr(2). */
enum { SET_READ_ONLY = 1, SET_NOSUID = 2, SET_NODEV = 4, SET_NOEXEC = 8 };

/* A copy of what is mounted at `path` (below `directory`, or all of it when the path is empty), attached nowhere. */
int tree_copy(int directory, const char *path, int recursive, const char *called);
void tree_attach(int tree, int directory, const char *path, const char *called);
int attributes_change(int tree, const struct attributes *wanted, int recursive); /* 0, or -1 with errno */

/* A new filesystem, attached nowhere; `options` are divided by commas, and "" is none. -1 with errno. */
int filesystem_make(const char *type, const char *source, const char *options, uint64_t attributes);

/* Relative to `root`, and never out of it, whatever links are on the way. -1 with errno. */
int open_beneath(int root, const char *path, int flags);

/* A child in new namespaces, born in the control group `group` unless that is negative; 0 in the child. */
pid_t clone_into(uint64_t flags, int group);

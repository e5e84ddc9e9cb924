#pragma once

#include <stddef.h>
#include <stdint.h>

/* The plan of one launch, written by the daemon (src/hawker/runtime/launcher/plan.py): a head of "hawkplan", u32
 * version, u32 length of the whole, then records of u32 kind, u32 length of its fields, fields. A field is a u64, or
 * bytes: u32 length, the bytes, and one NUL that is not counted. Numbers are little-endian, nothing is aligned. Records
 * are carried out in the order of their stages; a plan with a record, a field or a byte too many or too few is refused
 * before anything is done. */

enum { PLAN_VERSION = 1, PLAN_BYTES_MAX = 1 << 20 };

enum record_kind {
    GROUP = 1,    /* path, joined (0 no, 1 by `tasks`, 2 by clone): a control group, made with its parent */
    GROUP_SET,    /* file, value, needed: written to the last group */
    GROUP_FILTER, /* program: which devices the last group may use, version 2 */
    NETNS,        /* path */
    USERNS,       /* uid map, gid map */
    OOM_SCORE,    /* text */
    NAMESPACES,   /* CLONE_NEW... flags */
    RUN_ON_HOST,  /* ARG is run in the groups, and in no machine */
    ROOT,         /* path, read-only, mapped */
    HOSTNAME,     /* text */
    FILESYSTEM,   /* target, type, source, options (comma), attributes, where (enum place) */
    BIND,         /* target, source, attributes, recursive, inside, mapped */
    NODE,         /* path, mode, major, minor: of this host's where there is a user namespace */
    LINK,         /* path, leads to, forced */
    MASK,         /* path */
    READ_ONLY,    /* path */
    RLIMIT,       /* resource, soft, hard */
    CAPABILITIES, /* bounding, effective, permitted, inheritable, ambient */
    NO_NEW_PRIVILEGES,
    SECCOMP, /* flags, program */
    ARG,     /* text */
    ENV,     /* text */
    APPARMOR, /* name of a profile that the kernel has */
    KINDS
};

enum place { ANYWHERE, AT_THE_ROOT }; /* proc and sysfs are mounted on a plain directory, and on no link */

enum { FIELDS_MAX = 6 };

struct field {
    uint64_t number;
    const char *bytes; /* NUL-terminated; without a NUL inside unless it is a program */
    size_t length;
};

struct record {
    enum record_kind kind;
    struct field fields[FIELDS_MAX];
};

struct plan {
    const char *bytes;
    size_t length, at;
};

/* Reads the whole plan from a file, and refuses one that is not well-formed. */
void plan_read(struct plan *plan, const char *path);

/* The next record of a kind from `plan->at` on, which starts at 0; 0 when there is none. */
int plan_next(struct plan *plan, struct record *record);
int plan_find(const struct plan *plan, enum record_kind kind, struct record *record);

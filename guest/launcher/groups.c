#include "groups.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "report.h"

enum { PATH_BYTES = 4096, VALUE_BYTES = 4096, GROUPS_MAX = 32, TRIES = 50, BY_TASKS = 1, BY_CLONE = 2 };

static int born_in = -1;
static int joined[GROUPS_MAX];
static int joins;

int groups_of_child(void) {
    return born_in;
}

/* A new group of version 1 has no cpus and no memory nodes, and nobody can join it then. Whether the tree has them at
 * all: in the others a look at one file is enough. */
static int inherit(int parent, int group, const char *name) {
    char value[VALUE_BYTES];
    int from = openat(parent, name, O_RDONLY | O_CLOEXEC);
    if (from < 0) return 0;
    int to = openat(group, name, O_RDWR | O_CLOEXEC);
    ssize_t length = to < 0 ? 0 : read(from, value, sizeof value);
    char had;
    if (length > 1 && read(to, &had, 1) <= 1 && had == '\n' && pwrite(to, value, (size_t)length, 0) < 0)
        fail("write", name);
    close(from);
    if (to >= 0) close(to);
    return 1;
}

static int open_directory(const char *path) {
    return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static int make_one(const char *path) {
    char parent[PATH_BYTES];
    const char *slash = strrchr(path, '/');
    memcpy(parent, path, (size_t)(slash - path));
    parent[slash - path] = 0;
    if (mkdir(path, 0755) < 0 && errno != EEXIST) return -1;
    int above = open_directory(parent), group = open_directory(path);
    if (above >= 0 && group >= 0 && inherit(above, group, "cpuset.cpus")) inherit(above, group, "cpuset.mems");
    if (above >= 0) close(above);
    return group;
}

/* The parent may go at any moment, with the last machine that had a group in it. */
static int make(const char *path) {
    char parent[PATH_BYTES];
    const char *slash = strrchr(path, '/');
    if (!slash || slash == path || slash - path >= PATH_BYTES) fail_with(EINVAL, "make the control group", path);
    memcpy(parent, path, (size_t)(slash - path));
    parent[slash - path] = 0;
    for (int i = 0; i < TRIES; i++) {
        int group = make_one(path);
        if (group >= 0) return group;
        if (errno != ENOENT) break;
        group = make_one(parent);
        if (group >= 0) close(group);
    }
    fail("make the control group", path);
}

static void set(int group, const struct record *record) {
    const struct field *file = &record->fields[0], *value = &record->fields[1];
    int fd = openat(group, file->bytes, O_WRONLY | O_CLOEXEC);
    ssize_t written = fd < 0 ? -1 : write(fd, value->bytes, value->length);
    if (written < 0 && record->fields[2].number) fail("limit the machine by", file->bytes);
    if (fd >= 0) close(fd);
}

static void filter_devices(int group, const struct field *program) {
    union bpf_attr load, attach;
    memset(&load, 0, sizeof load);
    memset(&attach, 0, sizeof attach);
    load.prog_type = BPF_PROG_TYPE_CGROUP_DEVICE;
    load.insns = (uint64_t)(uintptr_t)program->bytes;
    load.insn_cnt = (uint32_t)(program->length / sizeof(struct bpf_insn));
    load.license = (uint64_t)(uintptr_t) "Apache-2.0";
    int loaded = (int)syscall(SYS_bpf, BPF_PROG_LOAD, &load, sizeof load);
    if (loaded < 0) fail("load", "the rules about devices");
    attach.target_fd = (uint32_t)group;
    attach.attach_bpf_fd = (uint32_t)loaded;
    attach.attach_type = BPF_CGROUP_DEVICE;
    attach.attach_flags = BPF_F_ALLOW_MULTI;
    if (syscall(SYS_bpf, BPF_PROG_ATTACH, &attach, sizeof attach) < 0) fail("attach", "the rules about devices");
    close(loaded);
}

static int begin(const struct record *record) {
    int group = make(record->fields[0].bytes);
    if (record->fields[1].number == BY_CLONE) born_in = group;
    if (record->fields[1].number == BY_TASKS) {
        if (joins == GROUPS_MAX) fail_with(E2BIG, "join", "so many control groups");
        joined[joins++] = group;
    }
    return group;
}

static void join(int group) {
    int fd = openat(group, "tasks", O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, "0", 1) < 0) fail("join", "a control group");
    close(fd);
}

void groups_join(struct plan plan) {
    struct record record;
    int group = -1;
    while (plan_next(&plan, &record)) {
        if (record.kind == GROUP) group = begin(&record);
        if (record.kind == GROUP_SET) set(group, &record);
        if (record.kind == GROUP_FILTER) filter_devices(group, &record.fields[0]);
    }
    for (int i = 0; i < joins; i++) join(joined[i]);
}

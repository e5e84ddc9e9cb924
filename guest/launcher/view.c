#include "view.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "kernel.h"
#include "report.h"

enum { TREES_MAX = 256, LATER_MAX = 512, PATH_BYTES = 4096, ROOT_TREE = 0 };
enum { BIND_FLAGS = SET_READ_ONLY | SET_NOSUID | SET_NODEV | SET_NOEXEC };

static int trees[TREES_MAX]; /* the root's is the first, then those of BIND and FILESYSTEM records; -1: made inside */
static int root = -1;

static struct later {
    int tree;
    struct attributes attributes;
} later[LATER_MAX]; /* what becomes read-only when everything that is to be made in it has been */
static int latest;

/* --- on the host ---------------------------------------------------------------------------------------------- */

static int take(const char *path, int recursive) {
    struct attributes private = {.propagation = MS_PRIVATE};
    int tree = tree_copy(AT_FDCWD, path, recursive, path);
    if (attributes_change(tree, &private, recursive) < 0) fail("make private", path);
    return tree;
}

/* A user namespace gets a view of devices only of a network that it owns, and the machine's was made before it. */
static int make_filesystem(const struct field *fields) {
    uint64_t flags = fields[4].number & ~(uint64_t)SET_READ_ONLY;
    return filesystem_make(fields[1].bytes, fields[2].bytes, fields[3].bytes, flags);
}

static int is_of_the_host(const struct field *fields, int has_userns) {
    return has_userns && strcmp(fields[1].bytes, "sysfs") == 0;
}

static int open_tree_of(const struct record *record, int has_userns) {
    const struct field *fields = record->fields;
    if (record->kind == BIND) return fields[4].number ? -1 : take(fields[1].bytes, fields[3].number != 0);
    if (!is_of_the_host(fields, has_userns)) return -1;
    int tree = make_filesystem(fields);
    if (tree < 0) fail("mount", fields[0].bytes);
    return tree;
}

void view_open(struct plan plan, int has_userns) {
    struct record record;
    int next = ROOT_TREE + 1;
    while (plan_next(&plan, &record)) {
        if (record.kind == ROOT) trees[ROOT_TREE] = take(record.fields[0].bytes, 1);
        if (record.kind != BIND && record.kind != FILESYSTEM) continue;
        if (next == TREES_MAX) fail_with(E2BIG, "mount", "so many files");
        trees[next++] = open_tree_of(&record, has_userns);
    }
}

static void map(int tree, int userns, const char *called) {
    struct attributes mapped = {.set = 1 << 20 /* MOUNT_ATTR_IDMAP */, .userns = (uint64_t)userns};
    if (attributes_change(tree, &mapped, 0) < 0) fail("map the owners of", called);
}

void view_map(struct plan plan, int pid) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/ns/user", pid);
    int userns = open(path, O_RDONLY | O_CLOEXEC), next = ROOT_TREE + 1;
    if (userns < 0) fail("open", path);
    struct record record;
    while (plan_next(&plan, &record)) {
        if (record.kind == ROOT && record.fields[2].number) map(trees[ROOT_TREE], userns, record.fields[0].bytes);
        if (record.kind == BIND && record.fields[5].number) map(trees[next], userns, record.fields[1].bytes);
        next += record.kind == BIND || record.kind == FILESYSTEM;
    }
    close(userns);
}

/* --- paths in the machine's root ------------------------------------------------------------------------------ */

static int parent_of(const char *path, const char **name);

static int make_in(int parent, const char *name, int is_directory) {
    if (is_directory) {
        if (mkdirat(parent, name, 0755) < 0) return -1;
    } else {
        int made = openat(parent, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0755);
        if (made < 0) return -1;
        close(made);
    }
    return openat(parent, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
}

/* What is there, or is made, with the directories above it; -1 with errno. */
static int place(const char *path, int is_directory) {
    const char *name;
    int found = open_beneath(root, path, O_PATH);
    if (found >= 0 || errno != ENOENT) return found;
    int parent = parent_of(path, &name);
    if (parent < 0) return -1;
    int made = make_in(parent, name, is_directory);
    int error = errno;
    close(parent);
    errno = error;
    return made;
}

static int parent_of(const char *path, const char **name) {
    char parent[PATH_BYTES];
    const char *slash = strrchr(path, '/');
    size_t length = slash ? (size_t)(slash - path) : 0;
    if (!slash || length >= sizeof parent) return errno = EINVAL, -1;
    *name = slash + 1;
    if (length == 0) return open_beneath(root, ".", O_PATH | O_DIRECTORY);
    memcpy(parent, path, length);
    parent[length] = 0;
    return place(parent, 1);
}

static int must_place(const char *path, int is_directory) {
    int found = place(path, is_directory);
    if (found < 0) fail("make a place for", path);
    return found;
}

/* A plain directory, and no link to one. */
static int must_place_plainly(const char *path) {
    const char *name;
    int parent = parent_of(path, &name);
    if (parent < 0) fail("make a place for", path);
    if (mkdirat(parent, name, 0755) < 0 && errno != EEXIST) fail("make a place for", path);
    int found = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (found < 0) fail("mount on what is no directory:", path);
    close(parent);
    return found;
}

/* --- mounts --------------------------------------------------------------------------------------------------- */

static void change_later(int tree, struct attributes attributes) {
    if (latest == LATER_MAX) fail_with(E2BIG, "protect", "so many mounts");
    later[latest++] = (struct later){tree, attributes};
}

/* A flag that the host's own mount has can be locked in a user namespace: then it stays, which is stricter. */
static void change(int tree, struct attributes attributes, const char *called) {
    if (attributes_change(tree, &attributes, 0) == 0) return;
    attributes.clear = 0;
    if (attributes_change(tree, &attributes, 0) < 0) fail("set the flags of", called);
}

static void show(int tree, int target, uint64_t flags, uint64_t clear, const char *called) {
    struct attributes attributes = {.set = flags, .clear = clear & ~flags};
    tree_attach(tree, target, "", called);
    close(target);
    if (flags & SET_READ_ONLY)
        change_later(tree, attributes);
    else if (attributes.set | attributes.clear)
        change(tree, attributes, called);
}

static void mount_filesystem(const struct field *fields, int tree) {
    const char *target = fields[0].bytes;
    int on = fields[5].number == AT_THE_ROOT ? must_place_plainly(target) : must_place(target, 1);
    if (tree < 0) tree = make_filesystem(fields);
    if (tree < 0) fail("mount", target);
    show(tree, on, fields[4].number & SET_READ_ONLY, 0, target);
}

/* What the host's mount may not do, a user namespace may not either. */
static void mount_bind(const struct field *fields, int tree, int has_userns) {
    struct stat about;
    uint64_t clear = tree >= 0 && has_userns ? 0 : BIND_FLAGS;
    if (tree < 0) {
        int source = open_beneath(root, fields[1].bytes, O_PATH);
        if (source < 0) fail("find", fields[1].bytes);
        tree = tree_copy(source, "", fields[3].number != 0, fields[1].bytes);
        close(source);
    }
    if (fstat(tree, &about) < 0) fail("look at", fields[1].bytes);
    int target = must_place(fields[0].bytes, S_ISDIR(about.st_mode));
    show(tree, target, fields[2].number, clear, fields[0].bytes);
}

static void make_node(const struct field *fields, int has_userns) {
    const char *path = fields[0].bytes, *name;
    mode_t mode = (mode_t)fields[1].number;
    int directory = parent_of(path, &name);
    if (directory < 0) fail("make a place for", path);
    if (!has_userns) {
        if (mknodat(directory, name, mode, makedev(fields[2].number, fields[3].number)) < 0 && errno != EEXIST)
            fail("make the device", path);
    } else {
        int target = make_in(directory, name, 0);
        if (target < 0 && errno == EEXIST) target = openat(directory, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        if (target < 0) fail("make a place for", path);
        show(tree_copy(AT_FDCWD, path, 0, path), target, SET_NOSUID | SET_NOEXEC, BIND_FLAGS, path);
    }
    close(directory);
}

static void make_link(const struct field *fields) {
    const char *name;
    int directory = parent_of(fields[0].bytes, &name);
    if (directory < 0) fail("make a place for", fields[0].bytes);
    if (fields[2].number) (void)unlinkat(directory, name, 0);
    if (symlinkat(fields[1].bytes, directory, name) < 0 && (errno != EEXIST || fields[2].number))
        fail("make the link", fields[0].bytes);
    close(directory);
}

/* What is not there needs no hiding. */
static int open_to_hide(const char *path) {
    int found = open_beneath(root, path, O_PATH);
    if (found < 0 && errno != ENOENT && errno != EACCES) fail("hide", path);
    return found;
}

/* All that are hidden share one, in which nothing can be made. */
static int empty_directory(void) {
    static int first = -1;
    if (first >= 0) return tree_copy(first, "", 0, "an empty directory");
    return first = filesystem_make("tmpfs", "tmpfs", "size=0k", 0);
}

static void mask(const char *path) {
    struct stat about;
    int target = open_to_hide(path);
    if (target < 0) return;
    if (fstat(target, &about) < 0) fail("hide", path);
    int tree = S_ISDIR(about.st_mode) ? empty_directory() : tree_copy(AT_FDCWD, "/dev/null", 0, "/dev/null");
    if (tree < 0) fail("hide", path);
    show(tree, target, SET_READ_ONLY, BIND_FLAGS, path);
}

static void protect(const char *path) {
    int target = open_to_hide(path);
    if (target < 0) return;
    show(tree_copy(target, "", 1, path), target, SET_READ_ONLY, BIND_FLAGS, path);
}

/* --- the whole ------------------------------------------------------------------------------------------------ */

static void leave_host(void) {
    if (fchdir(root) < 0 || syscall(SYS_pivot_root, ".", ".") < 0) fail("enter", "the machine's root");
    if (umount2(".", MNT_DETACH) < 0 || chdir("/") < 0) fail("leave", "the host's root");
}

void view_enter(struct plan plan, int has_userns) {
    struct record record;
    int next = ROOT_TREE + 1;
    if (mount("", "/", "", MS_REC | MS_PRIVATE, "") < 0) fail("make private", "/");
    while (plan_next(&plan, &record)) {
        const struct field *fields = record.fields;
        if (record.kind == ROOT) {
            root = trees[ROOT_TREE];
            tree_attach(root, AT_FDCWD, "/", fields[0].bytes); /* where anybody may go; its own path may be closed */
            if (fields[1].number) change_later(root, (struct attributes){.set = SET_READ_ONLY});
        }
        if (record.kind == FILESYSTEM) mount_filesystem(fields, trees[next++]);
        if (record.kind == BIND) mount_bind(fields, trees[next++], has_userns);
        if (record.kind == NODE) make_node(fields, has_userns);
        if (record.kind == LINK) make_link(fields);
        if (record.kind == MASK) mask(fields[0].bytes);
        if (record.kind == READ_ONLY) protect(fields[0].bytes);
    }
    while (latest > 0) {
        latest--;
        change(later[latest].tree, later[latest].attributes, "what is read-only");
    }
    leave_host();
}

#include "mounts.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "disk.h"
#include "files.h"
#include "stages.h"

#define IMAGE "/image"
#define LAYER "/layer"
#define JOINED "/joined"

enum { SYNC_MS = 20000, LOOK_MS = 5 };

static struct mount mounts[MOUNTS_MAX];
static size_t count;

struct mount *mount_at(size_t index) { return index < count ? &mounts[index] : NULL; }

struct mount *mount_find(const char *target) {
    for (size_t i = 0; i < count; i++)
        if (strcmp(mounts[i].target, target) == 0) return &mounts[i];
    return NULL;
}

static int mount_disk(const char *disk, const char *target, const char *fstype, unsigned long flags, struct failure *why) {
    const char *path = disk_path(disk);
    if (!path) return fail(why, ENODEV, "disk", disk);
    stage_pause();
    int result = mount(path, target, fstype, flags, NULL), error = errno;
    stage_go_on();
    return result < 0 ? fail(why, error, "mount disk", disk) : 0;
}

static int keep(const char *path, const char *target, const char *disk, bool read_only, struct failure *why) {
    struct mount *kept = &mounts[count];
    kept->target = target;
    kept->device = read_only ? -1 : open(disk_path(disk), O_RDONLY | O_CLOEXEC);
    kept->root = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (kept->root < 0) return fail(why, errno, "open", path);
    count++;
    return 0;
}

/* --- the root ------------------------------------------------------------------------------------------------- */

static int mount_image(const char *disk, struct failure *why) {
    static const char *const types[] = {"erofs", "ext4"};
    mkdir(IMAGE, 0755);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (mount_disk(disk, IMAGE, types[i], MS_RDONLY, why) == 0) return 0;
    return -1;
}

/* The joined root looks like the upper directory: at first it is to look like the image's. */
static int prepare_layer(struct failure *why) {
    struct stat about;
    if (mkdir(LAYER "/work", 0755) < 0 && errno != EEXIST) return fail(why, errno, "make", LAYER "/work");
    if (mkdir(LAYER "/upper", 0755) < 0) return errno == EEXIST ? 0 : fail(why, errno, "make", LAYER "/upper");
    if (stat(IMAGE, &about) < 0 || chown(LAYER "/upper", about.st_uid, about.st_gid) < 0 ||
        chmod(LAYER "/upper", about.st_mode & 07777) < 0)
        return fail(why, errno, "prepare", LAYER "/upper");
    return 0;
}

static int join(struct failure *why) {
    static const char options[] = "lowerdir=" IMAGE ",upperdir=" LAYER "/upper,workdir=" LAYER "/work";
    mkdir(JOINED, 0755);
    stage_pause();
    int result = mount("overlay", JOINED, "overlay", 0, options), error = errno;
    stage_go_on();
    return result < 0 ? fail(why, error, "join", "image and layer") : 0;
}

/* Onto the root of all mounts rather than beside it: a root that is not the namespace's may not have user namespaces. */
static int move_there(struct failure *why) {
    static const char *const early[] = {"/dev", "/sys", "/proc"};
    for (size_t i = 0; i < sizeof early / sizeof *early; i++) (void)umount2(early[i], MNT_DETACH);
    if (chdir(JOINED) < 0 || mount(".", "/", NULL, MS_MOVE, NULL) < 0 || chroot(".") < 0 || chdir("/") < 0)
        return fail(why, errno, "enter", JOINED);
    return 0;
}

int root_enter(const struct outfit *outfit, struct failure *why) {
    mkdir(LAYER, 0755);
    if (mount_image(outfit->image, why) < 0) return -1;
    if (mount_disk(outfit->layer, LAYER, "ext4", MS_NOATIME, why) < 0) return -1;
    if (keep(LAYER, "/", outfit->layer, false, why) < 0) return -1;
    if (prepare_layer(why) < 0 || join(why) < 0) return -1;
    return move_there(why);
}

static bool is_empty(int root) {
    int again = openat(root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *directory = again < 0 ? NULL : fdopendir(again);
    if (!directory) {
        if (again >= 0) close(again);
        return false;
    }
    bool empty = true;
    for (struct dirent *each; empty && (each = readdir(directory));)
        empty = strcmp(each->d_name, ".") == 0 || strcmp(each->d_name, "..") == 0 || strcmp(each->d_name, "lost+found") == 0;
    closedir(directory);
    return empty;
}

/* A volume that nobody has used yet gets the owner and the permissions of the image's directory in its place: a process
 * with a user of its own could not write there otherwise. */
static int hand_over(int root, const struct stat *place, const char *target, struct failure *why) {
    struct stat about;
    if (fstat(root, &about) < 0) return fail(why, errno, "look at", target);
    if (about.st_uid != 0 || about.st_gid != 0 || (about.st_mode & 07777) != 0755 || !is_empty(root)) return 0;
    if (fchown(root, place->st_uid, place->st_gid) < 0 || fchmod(root, place->st_mode & 0777) < 0)
        return fail(why, errno, "hand over", target);
    return 0;
}

int volumes_mount(const struct outfit *outfit, struct failure *why) {
    for (size_t i = 0; i < outfit->volume_count; i++) {
        const struct volume *volume = &outfit->volumes[i];
        struct stat place;
        if (make_directories(volume->target) < 0 || stat(volume->target, &place) < 0)
            return fail(why, errno, "make", volume->target);
        unsigned long flags = MS_NODEV | MS_NOATIME | (volume->read_only ? MS_RDONLY : 0);
        if (mount_disk(volume->disk, volume->target, volume->fstype, flags, why) < 0) return -1;
        if (keep(volume->target, volume->target, volume->disk, volume->read_only, why) < 0) return -1;
        if (!volume->read_only && hand_over(mounts[count - 1].root, &place, volume->target, why) < 0) return -1;
    }
    return 0;
}

/* --- the end -------------------------------------------------------------------------------------------------- */

/* By its root's descriptor: the workload may have hidden or unmounted the path. Written back and clean, when nobody can
 * write there any more. */
static void make_read_only(int root) {
    (void)ioctl(root, FITHAW, 0); /* nothing could be written to what is held still */
    int context = (int)syscall(SYS_fspick, root, "", FSPICK_EMPTY_PATH | FSPICK_CLOEXEC);
    if (context < 0) return;
    (void)syscall(SYS_fsconfig, context, FSCONFIG_SET_FLAG, "ro", NULL, 0);
    (void)syscall(SYS_fsconfig, context, FSCONFIG_CMD_RECONFIGURE, NULL, NULL, 0);
    close(context);
}

/* By a child, who may wait for ever: the workload may have mounted what no longer answers. */
static void write_back(void) {
    pid_t child = fork();
    if (child == 0) {
        sync();
        _exit(0);
    }
    for (int looks = 0; child > 0 && looks < SYNC_MS / LOOK_MS && waitpid(child, NULL, WNOHANG) == 0; looks++)
        poll(NULL, 0, LOOK_MS);
}

void mounts_release(void) {
    write_back();
    (void)mount(NULL, "/", NULL, MS_REMOUNT | MS_RDONLY, NULL); /* what lies over the layer writes back first */
    while (count > 0) make_read_only(mounts[--count].root);
}

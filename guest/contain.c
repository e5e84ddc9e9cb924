#include "contain.h"

#include <stdbool.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "power.h"
#include "stages.h"

static const struct {
    const char *type;
    const char *target;
    unsigned long flags;
    const char *options;
    bool own_kernel; /* only there: elsewhere the container engine says what the workload may see */
} mounts[] = {
    {"proc", "/proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL, false},
    {"sysfs", "/sys", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL, false},
    {"devtmpfs", "/dev", MS_NOSUID, "mode=755", false},
    {"devpts", "/dev/pts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620,gid=5", false},
    {"tmpfs", "/dev/shm", MS_NOSUID | MS_NODEV, "mode=1777", false},
    {"mqueue", "/dev/mqueue", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL, true},
    {"cgroup2", "/sys/fs/cgroup", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL, true},
};

static int is_mounted(const char *target) {
    char parent[64];
    struct stat here, above;
    strcpy(parent, target);
    strcat(parent, "/..");
    return stat(target, &here) == 0 && stat(parent, &above) == 0 && here.st_dev != above.st_dev;
}

/* What programs expect in /dev and no kernel makes. */
static void link_streams(void) {
    (void)!symlink("/proc/self/fd", "/dev/fd");
    (void)!symlink("/proc/self/fd/0", "/dev/stdin");
    (void)!symlink("/proc/self/fd/1", "/dev/stdout");
    (void)!symlink("/proc/self/fd/2", "/dev/stderr");
}

/* Failures are left to those who need the mount: a machine without /dev/shm is worth more than none. */
void mount_missing(void) {
    for (size_t i = 0; i < sizeof mounts / sizeof *mounts; i++) {
        if ((mounts[i].own_kernel && !power_is_ours()) || is_mounted(mounts[i].target)) continue;
        mkdir(mounts[i].target, 0755);
        stage_pause();
        (void)mount(mounts[i].type, mounts[i].target, mounts[i].type, mounts[i].flags, mounts[i].options);
        stage_go_on();
    }
    if (power_is_ours()) link_streams();
}

void contain(const char *hostname) {
    if (getpid() != 1) return;
    if (hostname[0]) (void)!sethostname(hostname, strlen(hostname));
    mount_missing();
}

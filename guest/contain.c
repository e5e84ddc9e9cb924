#include "contain.h"

#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct {
    const char *type;
    const char *target;
    unsigned long flags;
    const char *options;
} mounts[] = {
    {"proc", "/proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL},
    {"sysfs", "/sys", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL},
    {"devtmpfs", "/dev", MS_NOSUID, "mode=755"},
    {"devpts", "/dev/pts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620,gid=5"},
    {"tmpfs", "/dev/shm", MS_NOSUID | MS_NODEV, "mode=1777"},
};

static int is_mounted(const char *target) {
    char parent[64];
    struct stat here, above;
    strcpy(parent, target);
    strcat(parent, "/..");
    return stat(target, &here) == 0 && stat(parent, &above) == 0 && here.st_dev != above.st_dev;
}

/* Failures are left to those who need the mount: a machine without /dev/shm is worth more than none. */
void contain(const char *hostname) {
    if (getpid() != 1) return;
    if (hostname[0]) (void)!sethostname(hostname, strlen(hostname));
    for (size_t i = 0; i < sizeof mounts / sizeof *mounts; i++) {
        if (is_mounted(mounts[i].target)) continue;
        mkdir(mounts[i].target, 0755);
        (void)mount(mounts[i].type, mounts[i].target, mounts[i].type, mounts[i].flags, mounts[i].options);
    }
}

#include "disk.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct {
    char name[DISK_NAME];
    char path[DISK_PATH]; /* "": not found yet */
} disks[DISKS_MAX];
static size_t count;

/* vda to vdz, then vdaa and on, as the kernel counts. */
static const char *device(size_t index) {
    static char name[8];
    if (index < 26)
        snprintf(name, sizeof name, "vd%c", (char)('a' + index));
    else
        snprintf(name, sizeof name, "vd%c%c", (char)('a' + index / 26 - 1), (char)('a' + index % 26));
    return name;
}

static void read_serial(const char *device_name, char serial[DISK_NAME]) {
    char path[64];
    snprintf(path, sizeof path, "/sys/block/%s/serial", device_name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = read(fd, serial, DISK_NAME - 1);
    serial[got > 0 ? got : 0] = 0;
    serial[strcspn(serial, "\n")] = 0;
    if (fd >= 0) close(fd);
}

static size_t index_of(const char *name) {
    size_t index = 0;
    while (index < count && strcmp(disks[index].name, name) != 0) index++;
    return index;
}

static void take_names(const char *names) {
    while (*names && count < DISKS_MAX) {
        size_t length = strcspn(names, ",");
        snprintf(disks[count++].name, DISK_NAME, "%.*s", (int)length, names);
        names += length + (names[length] == ',');
    }
}

void disks_find(const char *names) {
    bool placed[DISKS_MAX] = {false};
    char serial[DISK_NAME];
    take_names(names);
    for (size_t i = 0; i < count; i++) {
        read_serial(device(i), serial);
        size_t named = serial[0] ? index_of(serial) : count;
        placed[i] = named < count;
        if (placed[i]) snprintf(disks[named].path, DISK_PATH, "/dev/%s", device(i));
    }
    for (size_t i = 0; i < count; i++)
        if (!disks[i].path[0] && !placed[i]) snprintf(disks[i].path, DISK_PATH, "/dev/%s", device(i));
}

const char *disk_path(const char *name) {
    size_t index = index_of(name);
    return index < count && disks[index].path[0] ? disks[index].path : NULL;
}

#include "boot.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/vm_sockets.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "disk.h"
#include "journal_disk.h"
#include "loop.h"
#include "peer.h"
#include "port.h"
#include "power.h"
#include "stages.h"
#include "timer.h"

enum { OPEN_FILES = 65536, LINE = 4096, VALUE = 1024, EVENT = 8192, UEVENTS = 1, BACKLOG = 32 };

static char vsock_port[16];
static int uevents = -1;

static void mount_early(void) {
    static const char *const mounts[][2] = {{"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"}};
    for (size_t i = 0; i < sizeof mounts / sizeof *mounts; i++) {
        mkdir(mounts[i][1], 0755);
        if (mount(mounts[i][0], mounts[i][1], mounts[i][0], 0, NULL) < 0 && errno != EBUSY)
            power_fail(errno, "mount", mounts[i][1]);
    }
}

static void read_command_line(char line[LINE]) {
    int fd = open("/proc/cmdline", O_RDONLY | O_CLOEXEC);
    ssize_t got = read(fd, line, LINE - 1);
    line[got > 0 ? got : 0] = 0;
    if (fd >= 0) close(fd);
}

/* The value of a word NAME=VALUE; "" without one. The first counts. */
static void take_argument(const char *line, const char *name, char *value, size_t size) {
    size_t length = strlen(name);
    value[0] = 0;
    for (const char *word = line; *word; word += strspn(word, " \n")) {
        size_t end = strcspn(word, " \n");
        if (strncmp(word, name, length) == 0 && word[length] == '=') {
            snprintf(value, size, "%.*s", (int)(end - length - 1), word + length + 1);
            return;
        }
        word += end;
    }
}

/* One that is there already, or that this kernel has no use for, is no reason to stop: what is missing will tell. */
static void load(const char *name) {
    char path[128];
    snprintf(path, sizeof path, "/modules/%.100s", name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    (void)syscall(SYS_finit_module, fd, "", 0);
    close(fd);
    unlink(path); /* it is memory */
}

static void load_modules(void) {
    char line[128];
    FILE *order = fopen("/modules/order", "re");
    while (order && fgets(line, sizeof line, order)) {
        line[strcspn(line, "\n")] = 0;
        if (line[0]) load(line);
    }
    if (order) fclose(order);
}

static void write_setting(const char *path, const char *value) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    (void)!write(fd, value, strlen(value));
    if (fd >= 0) close(fd);
}

/* What a container engine sees to elsewhere. Memory has run out once the pages of the last second do not fit: without
 * that, a kernel without swap reads the same pages of programs again for minutes before it ends one. */
static void set_limits(void) {
    struct rlimit files = {.rlim_cur = OPEN_FILES, .rlim_max = OPEN_FILES};
    (void)setrlimit(RLIMIT_NOFILE, &files);
    write_setting("/proc/self/oom_score_adj", "-1000");
    write_setting("/sys/kernel/mm/lru_gen/enabled", "y");
    write_setting("/sys/kernel/mm/lru_gen/min_ttl_ms", "1000");
}

void boot(struct place *journal, struct place segments[2]) {
    char line[LINE], value[VALUE];
    power_take();
    stage_reached(PILOT_BEGUN);
    stage_pause();
    mount_early();
    stage_go_on();
    set_limits();
    read_command_line(line);
    take_argument(line, "hawker.end", value, sizeof value);
    power_set_end(value);
    take_argument(line, "hawker.timer", value, sizeof value);
    if (value[0] && !timer_is_about(strtoul(value, NULL, 10))) power_fail(EAGAIN, "start again:", "no right timer");
    take_argument(line, "hawker.vsock", vsock_port, sizeof vsock_port);
    stage_pause();
    load_modules();
    stage_go_on();
    take_argument(line, "hawker.disks", value, sizeof value);
    disks_find(value);
    stage_reached(DEVICES_THERE);
    const char *disk = disk_path("ledger");
    if (!disk) power_fail(ENOENT, "disk", "ledger");
    stage_pause();
    if (journal_disk_open(disk, journal, segments) < 0) power_fail(errno, "ledger", disk);
    stage_go_on();
}

/* --- the ways in ---------------------------------------------------------------------------------------------- */

static void listen_on_vsock(unsigned port) {
    struct sockaddr_vm address = {.svm_family = AF_VSOCK, .svm_cid = VMADDR_CID_ANY, .svm_port = port};
    int fd = socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) < 0 || listen(fd, BACKLOG) < 0)
        power_fail(errno, "vsock", vsock_port);
    peers_listen(fd);
    stage_reached(STREAMS_OPEN);
}

static void find_ports(void) {
    if (ports_find() > 0) stage_reached(STREAMS_OPEN);
}

/* Ports come some time after their driver, and get their names later still; each is an event. */
static void uevent_ready(void *owner, int fd, short events) {
    char event[EVENT];
    bool more = false;
    (void)owner, (void)events;
    for (ssize_t got; (got = recv(fd, event, sizeof event, 0)) >= 0 || errno == ENOBUFS;)
        more |= got < 0 || memmem(event, (size_t)got, "/virtio-ports/", 14);
    if (more) find_ports();
}

void boot_streams(void) {
    struct sockaddr_nl address = {.nl_family = AF_NETLINK, .nl_groups = UEVENTS};
    if (vsock_port[0]) {
        listen_on_vsock((unsigned)strtoul(vsock_port, NULL, 10));
        return;
    }
    uevents = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_KOBJECT_UEVENT);
    if (uevents < 0 || bind(uevents, (struct sockaddr *)&address, sizeof address) < 0)
        power_fail(errno, "listen for", "ports");
    find_ports();
}

void boot_watch(void) { loop_watch(uevents, POLLIN, uevent_ready, NULL); }

#include "upkeep.h"

#include <errno.h>
#include <linux/fs.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "errand.h"
#include "freeze.h"
#include "mounts.h"
#include "outfit.h"
#include "power.h"

#define EXT4_IOC_RESIZE_FS _IOW('f', 16, uint64_t) /* fs/ext4/ext4.h */

enum { EXT4_MAGIC = 0xef53, LOOKS = 20, LOOK_MS = 10 };

static void send_numbers(struct peer *peer, enum frame type, uint32_t channel, const uint64_t *numbers, size_t count) {
    uint8_t payload[64];
    for (size_t i = 0; i < count; i++) store_number(payload + 8 * i, numbers[i], 8);
    peer_send(peer, type, channel, payload, 8 * count);
}

static void take_clock(struct peer *peer, uint32_t channel, uint64_t unix_ns) {
    struct failure why;
    peer_send_done(peer, channel, clock_set(unix_ns, &why) < 0 ? &why : NULL);
}

/* --- memory --------------------------------------------------------------------------------------------------- */

static void tell_memory(struct peer *peer, uint32_t channel) {
    static const char *const names[] = {"MemTotal", "MemAvailable", "MemFree", "SwapTotal", "SwapFree"};
    enum { NAMES = sizeof names / sizeof *names };
    uint64_t bytes[NAMES] = {0};
    char line[128], name[64];
    unsigned long long kib;
    FILE *file = fopen("/proc/meminfo", "re");
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "%63[^:]: %llu", name, &kib) != 2) continue;
        for (size_t i = 0; i < NAMES; i++)
            if (strcmp(name, names[i]) == 0) bytes[i] = kib * 1024;
    }
    if (file) fclose(file);
    send_numbers(peer, FRAME_MEMORY_IS, channel, bytes, NAMES);
}

/* --- file systems --------------------------------------------------------------------------------------------- */

static void tell_usage(struct peer *peer, uint32_t channel, const struct mount *mount) {
    struct statfs about;
    struct failure why;
    if (fstatfs(mount->root, &about) < 0) {
        fail(&why, errno, "usage of", mount->target);
        peer_refuse(peer, channel, why.text);
        return;
    }
    const uint64_t numbers[] = {(uint64_t)about.f_bsize, about.f_blocks, about.f_bfree, about.f_bavail};
    send_numbers(peer, FRAME_USAGE_IS, channel, numbers, 4);
}

static uint64_t field(const uint8_t *bytes, size_t width) {
    struct cursor cursor = {.at = bytes, .end = bytes + width};
    return take_number(&cursor, width);
}

/* How many blocks the file system has, by its superblock, and how many its disk has room for. */
static int count_blocks(const struct mount *mount, uint64_t *has, uint64_t *room) {
    enum { AT = 1024, LENGTH = 1024, COUNT_LOW = 0x4, LOG_SIZE = 0x18, MAGIC = 0x38, COUNT_HIGH = 0x150 };
    uint8_t super[LENGTH];
    uint64_t size = 0;
    if (ioctl(mount->device, BLKGETSIZE64, &size) < 0 || pread(mount->device, super, LENGTH, AT) != LENGTH) return -1;
    if (field(super + MAGIC, 2) != EXT4_MAGIC) {
        errno = EOPNOTSUPP;
        return -1;
    }
    *has = field(super + COUNT_LOW, 4) | field(super + COUNT_HIGH, 4) << 32;
    *room = size >> (10 + (field(super + LOG_SIZE, 4) & 7));
    return 0;
}

/* The disk's driver may learn of its new size a moment after we are asked. */
static int grow(const struct mount *mount, struct failure *why) {
    uint64_t has = 0, room = 0;
    for (int look = 0; look < LOOKS && room <= has; look++) {
        if (look > 0) poll(NULL, 0, LOOK_MS);
        if (count_blocks(mount, &has, &room) < 0) return fail(why, errno, "grow", mount->target);
    }
    if (room <= has) return 0;
    return ioctl(mount->root, EXT4_IOC_RESIZE_FS, &room) < 0 ? fail(why, errno, "grow", mount->target) : 0;
}

static struct fstrim_range trimmed; /* by the errand that is sent next, which has it for its own */

/* What lies beyond the end, and a disk that drops nothing, are no failure. */
static int trim(const struct mount *mount, struct failure *why) {
    struct statfs about;
    if (fstatfs(mount->root, &about) < 0) return fail(why, errno, "trim", mount->target);
    if (trimmed.start / (uint64_t)about.f_bsize >= about.f_blocks) return 0;
    if (ioctl(mount->root, FITRIM, &trimmed) == 0 || errno == EOPNOTSUPP || errno == ENOTTY) return 0;
    return fail(why, errno, "trim", mount->target);
}

static void tended(struct peer *peer, uint32_t channel, struct mount *mount, const struct failure *why) {
    (void)mount;
    peer_send_done(peer, channel, why);
}

static void begin(struct peer *peer, uint32_t channel, struct mount *mount, errand_fn errand, const char *what) {
    struct failure why;
    if (errand_send(peer, channel, mount, errand, tended)) return;
    fail(&why, EAGAIN, what, mount->target);
    peer_send_done(peer, channel, &why);
}

/* --- all ------------------------------------------------------------------------------------------------------ */

static void refuse_target(struct peer *peer, enum frame type, uint32_t channel, const char *target) {
    struct failure why;
    fail_with(&why, 0, "no disk is mounted at", target, "");
    if (type == FRAME_USAGE)
        peer_refuse(peer, channel, why.text);
    else
        peer_send_done(peer, channel, &why);
}

static bool for_mount(struct peer *peer, enum frame type, uint32_t channel, struct cursor *payload) {
    const char *target = take_string(payload);
    uint32_t timeout_ms = type == FRAME_FREEZE ? (uint32_t)take_number(payload, 4) : 0;
    if (type == FRAME_TRIM) {
        trimmed.start = take_number(payload, 8);
        trimmed.len = take_number(payload, 8);
    }
    if (payload->failed) return false;
    struct mount *mount = mount_find(target);
    if (!mount)
        refuse_target(peer, type, channel, target);
    else if (type == FRAME_FREEZE)
        freeze_begin(peer, channel, mount, timeout_ms);
    else if (type == FRAME_THAW)
        freeze_end(peer, channel, mount);
    else if (type == FRAME_GROW)
        begin(peer, channel, mount, grow, "grow");
    else if (type == FRAME_TRIM)
        begin(peer, channel, mount, trim, "trim");
    else
        tell_usage(peer, channel, mount);
    return true;
}

bool upkeep_take(struct peer *peer, enum frame type, uint32_t channel, struct cursor *payload) {
    if (!power_is_ours()) {
        peer_refuse(peer, channel, "this machine has the host's kernel");
        return true;
    }
    if (type == FRAME_MEMORY) {
        tell_memory(peer, channel);
        return true;
    }
    if (type != FRAME_CLOCK) return for_mount(peer, type, channel, payload);
    uint64_t unix_ns = take_number(payload, 8);
    if (payload->failed) return false;
    take_clock(peer, channel, unix_ns);
    return true;
}

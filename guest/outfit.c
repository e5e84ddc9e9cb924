#include "outfit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "contain.h"
#include "mounts.h"
#include "network.h"
#include "power.h"
#include "stages.h"
#include "swap.h"

enum { FAILED = 125 };

int clock_set(uint64_t unix_ns, struct failure *why) {
    struct timespec now = {.tv_sec = (time_t)(unix_ns / 1000000000u), .tv_nsec = (long)(unix_ns % 1000000000u)};
    return clock_settime(CLOCK_REALTIME, &now) < 0 ? fail(why, errno, "set", "clock") : 0;
}

/* "net.ipv4.ip_forward=1" is written to the file of that name, where dots are slashes. */
static int apply(const char *setting, struct failure *why) {
    char path[256];
    size_t length = strcspn(setting, "=");
    if (!setting[length]) return fail(why, EINVAL, "kernel setting", setting);
    snprintf(path, sizeof path, "/proc/sys/%.*s", (int)length, setting);
    for (char *at = path + sizeof "/proc/sys/" - 1; *at; at++)
        if (*at == '.') *at = '/';
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    const char *value = setting + length + 1;
    bool good = fd >= 0 && write(fd, value, strlen(value)) == (ssize_t)strlen(value);
    int error = errno;
    if (fd >= 0) close(fd);
    return good ? 0 : fail(why, error, "kernel setting", setting);
}

static int put_on(const struct outfit *outfit, struct failure *why) {
    if (clock_set(outfit->clock_ns, why) < 0) return -1;
    for (char **setting = outfit->settings; *setting; setting++)
        if (apply(*setting, why) < 0) return -1;
    if (network_begin(&outfit->link, why) < 0) return -1;
    stage_reached(NETWORK_UP);
    if (root_enter(outfit, why) < 0) return -1;
    mount_missing();
    if (volumes_mount(outfit, why) < 0) return -1;
    if (outfit->swap[0] && swap_begin(outfit->swap, why) < 0) return -1;
    stage_reached(ROOT_MOUNTED);
    return 0;
}

int outfit_put_on(const struct spec *spec, struct failure *why) {
    const struct outfit *outfit = &spec->outfit;
    int result = 0;
    if (outfit->given != power_is_ours())
        result = fail_with(why, FAILED, "this machine", outfit->given ? "has the host's kernel" : "has a kernel of its own", "");
    else if (outfit->given)
        result = put_on(outfit, why);
    why->code = FAILED;
    return result;
}

#include "power.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/reboot.h>
#include <unistd.h>

static bool ours;
static bool by_reboot;

void power_take(void) { ours = true; }
void power_set_end(const char *manner) { by_reboot = strcmp(manner, "reboot") == 0; }
bool power_is_ours(void) { return ours; }

void power_end(int code) {
    if (!ours) exit(code);
    (void)reboot(by_reboot ? RB_AUTOBOOT : RB_POWER_OFF);
    (void)reboot(by_reboot ? RB_POWER_OFF : RB_AUTOBOOT);
    for (;;) pause();
}

/* Nothing here may wait: the host need not read its end of the console. */
void power_fail(int error, const char *what, const char *object) {
    char line[256];
    int length = snprintf(line, sizeof line, "hawker: %.80s %.80s: %s\n", what, object, strerror(error));
    int console = open("/dev/console", O_WRONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
    (void)!write(console < 0 ? 2 : console, line, (size_t)length);
    power_end(125);
}

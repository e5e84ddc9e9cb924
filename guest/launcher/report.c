#include "report.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int report_to = -1;

void report_pid(int pid) {
    dprintf(report_to, "pid %d\n", pid);
}

/* In one write, so that two processes do not mix their lines. A path may hold anything: it stays one line. */
void fail_with(int error, const char *what, const char *object) {
    char line[512];
    int length = snprintf(line, sizeof line, "failed %d %s %.300s: %s", error, what, object, strerror(error));
    if (length >= (int)sizeof line) length = sizeof line - 1;
    for (int i = 0; i < length; i++)
        if ((unsigned char)line[i] < ' ') line[i] = '?';
    line[length] = '\n';
    (void)!write(report_to, line, (size_t)length + 1);
    _exit(1);
}

void fail(const char *what, const char *object) {
    fail_with(errno, what, object);
}

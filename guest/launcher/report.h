#pragma once

/* The one answer of a launch: lines on a pipe that closes when the machine's first program runs. "pid N" is process 1 as
 * the host numbers it; "failed ERRNO WORDS" says that there is no machine, and why. No end of the process says more. */

extern int report_to;

void report_pid(int pid);

/* Ends this process. `what` and `object` are words: "mount /proc". */
_Noreturn void fail(const char *what, const char *object);
_Noreturn void fail_with(int error, const char *what, const char *object);

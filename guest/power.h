/* A kernel of our own: whether there is one, and how it ends. Process 1 must never exit there: the kernel would panic. */
#ifndef POWER_H
#define POWER_H

#include <stdbool.h>

void power_take(void);                  /* this kernel was started for us */
void power_set_end(const char *manner); /* "reboot" or "poweroff", whichever makes the monitor end */
bool power_is_ours(void);

_Noreturn void power_end(int code);                                    /* exit, or turn the machine off */
_Noreturn void power_fail(int error, const char *what, const char *object); /* say why on the console first */

#endif

/* The instance: its processes from the spec to the final exit. The state machine is
 *
 *   awaiting --accept--> running --a process ends, or stop--> stopping --all ended, or time is up--> exited
 *
 * The machine ends when any process ends; that process's end is the machine's. */
#ifndef MACHINE_H
#define MACHINE_H

#include <sys/types.h>

#include "journal.h"
#include "spec.h"

enum state { AWAITING = 0, STARTING = 1, RUNNING = 2, STOPPING = 3, EXITED = 4 };

enum state machine_state(void);
const struct spec *machine_spec(void);
const struct ending *machine_ending(void); /* how it ended; meaningful once EXITED */
bool machine_ready(void);                  /* every process has executed */

void machine_accept(const struct spec *spec); /* takes the spec over */
void machine_stop(int signal, uint32_t timeout_ms); /* 0: as the spec says */
void machine_signal(int signal);
bool machine_reaped(pid_t pid, int status);
void machine_watch(void);
bool machine_over(void); /* nothing of it is left to wait for */
void machine_drain(void);
void machine_finish(void); /* write the final exit */

#endif

/* The instance: its processes from the spec to the final exit. The state machine is
 *
 *   awaiting --accept--> starting --all executed--> running --its end, or stop--> stopping --all ended--> exited
 *
 * The machine ends when any process ends, and that end is its own; or, when it is to be told, by `machine_conclude`:
 * until then the ends of its processes are noted, and processes may be started again. */
#ifndef MACHINE_H
#define MACHINE_H

#include <sys/types.h>

#include "journal.h"
#include "process.h"
#include "spec.h"

enum state { AWAITING = 0, STARTING = 1, RUNNING = 2, STOPPING = 3, EXITED = 4 };

enum state machine_state(void);
const struct spec *machine_spec(void);
const struct ending *machine_ending(void); /* how it ended; meaningful once EXITED */
bool machine_ready(void);                  /* every process has executed */

void machine_put_greeting(struct buffer *hello); /* its state, and which instance it is */

void machine_accept(const struct spec *spec); /* takes the spec over */
void machine_stop(int signal, uint32_t timeout_ms); /* 0: as the spec says */
void machine_signal(int signal);
bool machine_reaped(pid_t pid, int status);
void machine_executed(struct process *process); /* its exec is done, or has failed */
void machine_watch(void);
bool machine_over(void); /* nothing of it is left to wait for */
void machine_drain(void);
void machine_finish(void); /* write the final exit */

/* One process of a machine that runs; NULL when there is none of that number. */
struct process *machine_process(size_t index);
/* Begin run `number`, unless it was begun before. What is refused has its reason in the answer; else that is NULL. */
const char *machine_run(struct process *process, uint32_t number);
const char *machine_conclude(const struct process *process); /* its ending becomes the machine's */

#endif

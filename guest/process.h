/* One process of the machine through its runs: begun, executed or not, ended. What an end means for the machine is
 * machine.c's to say. */
#ifndef PROCESS_H
#define PROCESS_H

#include <sys/types.h>

#include "journal.h"
#include "spawn.h"

struct peer;

struct process;

/* Who reads a process's output as it comes, beside the ring. */
struct listener {
    size_t (*room)(const struct process *process); /* how many bytes may be read of it now */
    void (*hear)(const struct process *process, int stream, const void *bytes, size_t length);
};

struct process {
    const struct command *command;
    struct run run;
    struct child child;
    int64_t kill_at; /* when its stop's time is up; -1: it is not being stopped */
    void (*executed)(struct process *process); /* its exec is done, or has failed: `process_executed` says which */
};

void process_init(struct process *process, const struct command *command, size_t index, void (*executed)(struct process *));
bool process_goes_on(const struct process *process);
int process_begin(struct process *process, const struct spec *spec, struct failure *why); /* the next run */
int process_executed(struct process *process, struct failure *why);                        /* as `child_status` */
void process_end(struct process *process, const struct ending *ending);
void process_stop(struct process *process, int signal, uint32_t timeout_ms);
void process_tick(struct process *process); /* SIGKILL when its time is up */
void process_kill_rest(const struct process *process); /* what its run started, and itself */
void process_listen(const struct listener *listener); /* before the first process */
void process_watch(struct process *process);
bool process_read(struct process *process); /* one chunk of each stream, where the listener has room; false: none was there */
void process_drain(struct process *process);
void process_tell(const struct process *process, struct peer *peer, uint32_t channel); /* its state */
void process_tell_watchers(const struct process *process);

#endif

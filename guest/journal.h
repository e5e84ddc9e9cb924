/* The event journal: a few small records in a place that outlives us. PROTOCOL.md has the layout.
 *
 * Exit records are on disk when a call returns; space for all of them is taken at the start, so a full disk cannot
 * lose an exit. */
#ifndef JOURNAL_H
#define JOURNAL_H

#include "place.h"
#include "wire.h"

struct ending {
    uint32_t code;   /* 128 + signal when a signal ended it */
    uint32_t signal; /* 0 when it exited by itself */
    uint8_t process;
    uint64_t at_ns;
    char reason[256]; /* set when the workload never ran */
    bool oom;         /* the memory limit is to blame; found out only where nobody outside can */
};

enum run_state { HELD = 0, BEGUN = 1, EXECUTED = 2, ENDED = 3 };

/* The latest run of a process: `number` is 0 before the first. `ending` is how the latest that has ended did so. */
struct run {
    uint8_t process;
    enum run_state state;
    uint32_t number;
    uint32_t pid;
    uint64_t started_ns;
    bool ended_once;
    struct ending ending;
};

void journal_open(const struct place *place);
void journal_started(void);
void journal_accepted(const char *instance);
void journal_stages(const uint64_t *stages, size_t count); /* ns since the kernel began */
void journal_ready(void);
void journal_process_exit(const struct ending *ending);
void journal_expect_runs(void); /* more than one of a process: they may go on for years */
void journal_run_began(const struct run *run);
void journal_run_ended(const struct run *run);
bool journal_is_long(void);
void journal_begin_anew(void); /* the runs noted so far give way to those noted next, until `journal_end_anew` */
void journal_end_anew(void);
void journal_final_exit(const struct ending *ending);

bool put_ending(struct buffer *buffer, const struct ending *ending);

#endif

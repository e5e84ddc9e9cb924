/* The event journal: a few small records appended to a file that outlives us. PROTOCOL.md has the layout.
 *
 * Exit records are on disk when a call returns; space for all of them is taken at the start, so a full disk cannot
 * lose an exit. */
#ifndef JOURNAL_H
#define JOURNAL_H

#include "wire.h"

struct ending {
    uint32_t code;   /* 128 + signal when a signal ended it */
    uint32_t signal; /* 0 when it exited by itself */
    uint8_t process;
    uint64_t at_ns;
    char reason[256]; /* set when the workload never ran */
};

void journal_open(int fd); /* -1: keep none */
void journal_started(void);
void journal_accepted(const char *instance);
void journal_ready(void);
void journal_process_exit(const struct ending *ending);
void journal_final_exit(const struct ending *ending);

bool put_ending(struct buffer *buffer, const struct ending *ending);

#endif

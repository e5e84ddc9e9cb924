/* A peer at a main process: it types into the process's input and has its output as it comes, bounded by credit in both
 * directions. One peer at a time; while it reads slowly, so does the process write. What is written goes to the ring
 * all the same, and whoever leaves changes nothing for the process. */
#ifndef ATTACH_H
#define ATTACH_H

#include "process.h"

struct attachment;

void attach_open_all(void); /* before the first process */
/* NULL, or why not. 0 rows or columns: as they are. */
const char *attach_begin(struct peer *peer, uint32_t channel, struct process *process, uint16_t rows, uint16_t cols);
struct attachment *attach_find(const struct peer *peer, uint32_t channel);
bool attach_input(struct attachment *attached, const uint8_t *bytes, size_t length); /* false: more than the credit */
void attach_input_end(struct attachment *attached);
void attach_resize(struct attachment *attached, uint16_t rows, uint16_t cols);
void attach_signal(struct attachment *attached, int signal);
bool attach_credit(struct attachment *attached, uint32_t bytes); /* false: beyond any window */
void attach_leave(struct attachment *attached);
void attach_lost(const struct peer *peer);
void attach_watch(void);
void attach_tick(void);      /* tell of processes that have ended, once their output is told */
bool attach_has_more(void);  /* an ended process's output waits for a peer that still has time to read it */
void attach_finish(void);    /* nobody is left: say so */

#endif

/* Who descends from us, read from /proc: everything in a pid namespace of our own, our subtree elsewhere. */
#ifndef DESCENT_H
#define DESCENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct ancestry {
    pid_t pid;
    pid_t parent;
    pid_t session;
    bool zombie;
    uint64_t user_ticks;
    uint64_t system_ticks;
    uint64_t start_ticks; /* since the host's boot */
    uint64_t resident_pages;
    char name[17];
};

size_t descendants(struct ancestry *found, size_t most);
void kill_descendants(void);

/* Descendants in the session, or with that mark (0: none): what one process started. */
void kill_relatives(pid_t session, unsigned mark);

#endif

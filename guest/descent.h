/* Who descends from us, read from /proc: everything in a pid namespace of our own, our subtree elsewhere. */
#ifndef DESCENT_H
#define DESCENT_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct ancestry {
    pid_t pid;
    pid_t parent;
    uint64_t user_ticks;
    uint64_t system_ticks;
    uint64_t start_ticks; /* since the host's boot */
    uint64_t resident_pages;
    char name[17];
};

size_t descendants(struct ancestry *found, size_t most);
void kill_descendants(void);

#endif

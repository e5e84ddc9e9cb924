#include "loop.h"

#include <poll.h>
#include <time.h>

#include "stages.h"

enum { MAX_WATCHES = 768 }; /* more than all ports, peers, processes, errands and sessions together */

static struct pollfd fds[MAX_WATCHES];
static struct {
    ready_fn ready;
    void *owner;
} watches[MAX_WATCHES];
static int count;
static int64_t wake_at = -1;

int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

uint64_t unix_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void loop_watch(int fd, short events, ready_fn ready, void *owner) {
    if (fd < 0 || count == MAX_WATCHES) return;
    fds[count] = (struct pollfd){.fd = fd, .events = events};
    watches[count].ready = ready;
    watches[count].owner = owner;
    count++;
}

void loop_wake_at(int64_t deadline_ms) {
    if (wake_at < 0 || deadline_ms < wake_at) wake_at = deadline_ms;
}

static int patience(void) {
    if (wake_at < 0) return -1;
    int64_t wait = wake_at - now_ms();
    return wait < 0 ? 0 : wait > 3600000 ? 3600000 : (int)wait;
}

void loop_turn(void) {
    stage_pause();
    int ready = poll(fds, (nfds_t)count, patience());
    stage_go_on();
    for (int i = 0; ready > 0 && i < count; i++)
        if (fds[i].revents) watches[i].ready(watches[i].owner, fds[i].fd, fds[i].revents);
    count = 0;
    wake_at = -1;
}

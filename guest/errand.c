#include "errand.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <unistd.h>

#include "loop.h"
#include "spawn.h"

static struct errand {
    int fd; /* yields a `struct failure`, or ends: it is done; -1: no errand */
    pid_t pid;
    struct peer *peer;
    uint32_t channel;
    struct mount *mount;
    errand_done_fn done;
} errands[ERRANDS_MAX];
static size_t slots; /* those that were ever used */

static struct errand *free_slot(void) {
    for (size_t i = 0; i < slots; i++)
        if (errands[i].fd < 0) return &errands[i];
    return slots < ERRANDS_MAX ? &errands[slots++] : NULL;
}

_Noreturn static void go(const struct mount *mount, errand_fn errand, int status) {
    struct failure why = {0};
    if (errand(mount, &why) < 0) (void)!write(status, &why, sizeof why);
    _exit(0);
}

bool errand_send(struct peer *peer, uint32_t channel, struct mount *mount, errand_fn errand, errand_done_fn done) {
    int ends[2];
    struct errand *slot = free_slot();
    if (!slot) return false;
    slot->fd = -1;
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0) return false;
    pid_t pid = fork();
    if (pid == 0) go(mount, errand, ends[1]);
    close(ends[1]);
    if (pid < 0) {
        close(ends[0]);
        return false;
    }
    *slot = (struct errand){.fd = ends[0], .pid = pid, .peer = peer, .channel = channel, .mount = mount, .done = done};
    return true;
}

static void errand_ready(void *owner, int fd, short events) {
    struct errand *errand = owner;
    struct failure why;
    (void)events;
    if (fd != errand->fd) return;
    ssize_t got = read(fd, &why, sizeof why);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    close_fd(&errand->fd);
    errand->done(errand->peer, errand->channel, errand->mount, got == (ssize_t)sizeof why ? &why : NULL);
}

void errands_watch(void) {
    for (size_t i = 0; i < slots; i++) loop_watch(errands[i].fd, POLLIN, errand_ready, &errands[i]);
}

void errands_lost(const struct peer *peer) {
    for (size_t i = 0; i < slots; i++)
        if (errands[i].peer == peer) errands[i].peer = NULL;
}

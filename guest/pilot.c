/* Process 1 of every machine: waits for a run spec, runs it, records how it ended. See PROTOCOL.md.
 *
 *   pilot --listen FD | --stream FD | --port FD  [--journal FD] [--output FD --output FD]
 *
 * Descriptors are inherited. Without options it is the first program of a kernel of its own. Nothing here waits for a peer: nobody may be connected for days. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attach.h"
#include "boot.h"
#include "descent.h"
#include "dispatch.h"
#include "errand.h"
#include "freeze.h"
#include "journal.h"
#include "loop.h"
#include "machine.h"
#include "mounts.h"
#include "output.h"
#include "peer.h"
#include "port.h"
#include "power.h"
#include "session.h"
#include "spawn.h"

enum { USAGE = 125, REAP_MS = 2000, FLUSH_MS = 200, CLOEXEC_RANGE = 4 };

static int signals = -1;

static void peer_lost(const struct peer *peer) {
    sessions_lost(peer);
    attach_lost(peer);
    errands_lost(peer);
    freezes_lost(peer);
}

static const struct peer_handlers handlers = {.take = dispatch, .put_greeting = machine_put_greeting, .lost = peer_lost};

/* Whatever else a careless parent left open: held by us, it would keep someone's pipe from ending for days. */
static void close_others(const int *kept, size_t count) {
    for (unsigned first = 3, last; first != 0; first = last + 2) { /* the gap up to the next that is kept */
        last = ~0U - 1;
        for (size_t i = 0; i < count; i++)
            if (kept[i] >= (int)first && (unsigned)kept[i] - 1 < last) last = (unsigned)kept[i] - 1;
        if (last >= first) (void)syscall(SYS_close_range, first, last, 0);
    }
}

static int listen_fd = -1, stream_fd = -1, serial_fd = -1, journal_fd = -1, output_fds[2] = {-1, -1};

static void take_options(int argc, char **argv) {
    int outputs = 0;
    for (int i = 1; i + 1 < argc; i += 2) {
        int fd = atoi(argv[i + 1]);
        if (strcmp(argv[i], "--listen") == 0) listen_fd = fd;
        if (strcmp(argv[i], "--stream") == 0) stream_fd = fd;
        if (strcmp(argv[i], "--port") == 0) serial_fd = fd;
        if (strcmp(argv[i], "--journal") == 0) journal_fd = fd;
        if (strcmp(argv[i], "--output") == 0 && outputs < 2) output_fds[outputs++] = fd;
    }
    if (listen_fd < 3 && stream_fd < 3 && serial_fd < 3) {
        fputs("usage: pilot --listen FD | --stream FD | --port FD [--journal FD] [--output FD --output FD]\n", stderr);
        exit(USAGE);
    }
    const int kept[] = {listen_fd, stream_fd, serial_fd, journal_fd, output_fds[0], output_fds[1]};
    close_others(kept, sizeof kept / sizeof *kept);
}

/* Where to write to, and then the ways in: who reads of a start may ask the socket for our process id. */
static void begin_as_process(void) {
    struct place journal, segments[2];
    place_on_file(&journal, journal_fd);
    for (int i = 0; i < 2; i++) place_on_file(&segments[i], output_fds[i]);
    journal_open(&journal);
    output_open(segments);
    if (listen_fd >= 3) peers_listen(listen_fd);
    journal_started();
    if (stream_fd >= 3) peers_add(stream_fd);
    if (serial_fd >= 3) ports_add(serial_fd);
}

static void begin_as_init(void) {
    struct place journal, segments[2];
    boot(&journal, segments);
    journal_open(&journal);
    output_open(segments);
    journal_started();
    boot_streams();
}

/* No descriptor of ours reaches the workload but that of /dev/null, and it cannot take one from /proc/1/fd. */
static void guard(void) {
    int null;
    while ((null = open("/dev/null", O_RDWR | O_CLOEXEC)) >= 0 && null < 3) (void)fcntl(null, F_SETFD, 0);
    if (null >= 0) spawn_keep_null(null);
    if (syscall(SYS_close_range, 3, ~0U, CLOEXEC_RANGE) < 0)
        for (int fd = 3; fd < 1024; fd++) (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    prctl(PR_SET_DUMPABLE, 0);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
}

static void open_signals(void) {
    sigset_t set;
    sigfillset(&set);
    sigprocmask(SIG_SETMASK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGPWR); /* how some engines ask a machine to shut down */
    signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (signals < 0) power_end(USAGE);
}

static void reap(void) {
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;)
        if (!machine_reaped(pid, status)) (void)sessions_reaped(pid, status);
}

static void signal_ready(void *owner, int fd, short events) {
    struct signalfd_siginfo info;
    (void)owner, (void)events;
    while (read(fd, &info, sizeof info) == (ssize_t)sizeof info)
        if (info.ssi_signo != SIGCHLD) machine_stop(0, 0);
    reap();
}

/* Kill and bury until nobody is left. Who forks meanwhile is met again, as our child; in a pid namespace of our own
 * the kernel ends the rest with us. */
static void end_everything(void) {
    int64_t deadline = now_ms() + REAP_MS;
    for (;;) {
        siginfo_t nobody = {0};
        kill_descendants();
        reap();
        int64_t left = deadline - now_ms();
        if (waitid(P_ALL, 0, &nobody, WEXITED | WNOHANG | WNOWAIT) < 0 || left <= 0) return;
        struct pollfd wait = {.fd = signals, .events = POLLIN};
        poll(&wait, 1, left < 50 ? (int)left : 50);
        struct signalfd_siginfo info;
        (void)!read(signals, &info, sizeof info);
    }
}

_Noreturn static void end(void) {
    freezes_end();
    end_everything();
    machine_drain();
    output_write();
    machine_finish();
    sessions_finish();
    attach_finish();
    peers_tell_exit(machine_ending());
    peers_flush(now_ms() + FLUSH_MS);
    if (power_is_ours()) mounts_release();
    power_end((int)machine_ending()->code);
}

/* The kernel passes on what it does not know of its command line, so any word may be there. */
static bool is_init(int argc, char **argv) { return getpid() == 1 && (argc < 2 || strncmp(argv[1], "--", 2) != 0); }

int main(int argc, char **argv) {
    bool init = is_init(argc, argv);
    peers_open(&handlers);
    attach_open_all();
    if (!init) take_options(argc, argv);
    if (init) begin_as_init();
    guard();
    open_signals();
    if (!init) begin_as_process();
    for (;;) {
        sessions_tick();
        attach_tick();
        output_write(); /* before anyone is told of what came after it */
        ports_tick();
        peers_tick();
        if (machine_over()) end();
        boot_watch();
        ports_watch();
        peers_watch();
        errands_watch();
        freezes_watch();
        machine_watch();
        sessions_watch();
        attach_watch();
        loop_watch(signals, POLLIN, signal_ready, NULL);
        loop_turn();
    }
}

/* The host's companion of one virtual machine: it starts the machine's monitor (VMM), is its parent, keeps the last of
 * what it prints, and writes down how it ended, whether or not a daemon is there to see it.
 *
 *   keeper --pass=N [--pid=FILE] [--become=UID] [--hide=MOUNT] [--apart] [--from=SOURCE --show|--give=TARGET]... --
 *       PROGRAM ARGS
 *
 * Descriptors 3 to N+2 go to PROGRAM. The first of them carries a lock: the keeper holds it too, until the VMM has ended.
 * The next three are its own: status, record, console. PROGRAM starts the VMM, leaves its process id in FILE, and ends;
 * its wait status and, if it failed, its words go to the status pipe. MOUNT is hidden from it; it and what it starts, and
 * nobody else, see each SOURCE at its TARGET too, read-only or, given, writable. Apart, it begins with an empty network,
 * and has System V objects and a host name of its own. The record gains a line for each thing that happens: "keeper PID",
 * "vmm PID", "ended WAIT-STATUS UNIX-NS". The console is a ring: u64 count of all bytes so far, then the last 64 KiB, byte
 * number n at n modulo 65536. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <grp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { RING = 65536, HEAD = 8, CHUNK = 8192, WORDS = 4096, WRONG_USE = 125, CANNOT_RUN = 127, VIEWS = 128 };
enum { BURST = 1 << 20, BYTES_PER_MS = 256, NAP_MS = 100, ENDS = 16, DRAINS = 256, FIRST_PASSED = 3 };

static struct view {
    const char *source, *target;
    unsigned long flags;
} views[VIEWS];
static unsigned viewed;

static struct {
    int passed, status, record, console; /* a count, and three descriptors */
    const char *pid_file, *hidden, *source;
    long become;
    int apart;
    char **command;
} wanted = {.passed = -1};

static struct end {
    pid_t pid;
    int status;
} ends[ENDS]; /* of children that ended before it was known which of them is the VMM */
static unsigned ended;

static uint64_t printed; /* bytes */
static int output = -1;

static long long now_ms(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000LL + time.tv_nsec / 1000000;
}

/* --- console -------------------------------------------------------------------------------------------------- */

static void keep(const char *bytes, size_t length) {
    size_t at = printed % RING, first = length < RING - at ? length : RING - at;
    (void)!pwrite(wanted.console, bytes, first, (off_t)(HEAD + at));
    if (first < length) (void)!pwrite(wanted.console, bytes + first, length - first, HEAD);
    printed += length;
    unsigned char head[HEAD];
    for (int i = 0; i < HEAD; i++) head[i] = (unsigned char)(printed >> (8 * i));
    (void)!pwrite(wanted.console, head, HEAD, 0);
}

/* How much came; 0 when there is nothing now. */
static size_t listen_once(void) {
    char bytes[CHUNK];
    ssize_t got = output < 0 ? 0 : read(output, bytes, sizeof bytes);
    if (got > 0) keep(bytes, (size_t)got);
    if (got == 0 && output >= 0) {
        close(output);
        output = -1;
    }
    return got > 0 ? (size_t)got : 0;
}

static void drain(void) {
    for (int i = 0; i < DRAINS && listen_once() > 0; i++) continue;
}

/* A guest that floods its console waits for the keeper, and so costs it little: after a burst, a bucket of tokens. */
static int may_listen(size_t heard) {
    static long long tokens = BURST, filled;
    long long now = now_ms();
    tokens += (now - filled) * BYTES_PER_MS - (long long)heard;
    if (tokens > BURST) tokens = BURST;
    filled = now;
    return output >= 0 && tokens > 0;
}

/* --- children ------------------------------------------------------------------------------------------------- */

static void wake(int signal) {
    (void)signal;
}

static int forget(unsigned i) {
    int status = ends[i].status;
    memmove(&ends[i], &ends[i + 1], (--ended - i) * sizeof *ends);
    return status;
}

/* Until `pid` has ended, or nobody is left; the wait status of it, or of the last. Listens meanwhile. */
static int await(pid_t pid, const sigset_t *open) {
    for (size_t heard = 0;;) {
        for (unsigned i = 0; pid && i < ended; i++)
            if (ends[i].pid == pid) return forget(i);
        int status;
        pid_t gone = waitpid(-1, &status, WNOHANG);
        if (gone < 0 && errno == ECHILD) return ended ? forget(ended - 1) : 0;
        if (gone > 0) {
            ends[ended < ENDS ? ended++ : ENDS - 1] = (struct end){gone, status};
            continue;
        }
        int listening = may_listen(heard);
        struct pollfd from = {.fd = listening ? output : -1, .events = POLLIN};
        struct timespec nap = {.tv_nsec = NAP_MS * 1000000L};
        int found = ppoll(&from, 1, listening || output < 0 ? NULL : &nap, open);
        heard = found > 0 ? listen_once() : 0;
    }
}

/* The child that the program named. Whoever could write its file could name another: then it is not our child, and the
 * end of the last one is the end. */
static pid_t find_vmm(void) {
    char text[24] = "";
    int fd = wanted.pid_file ? open(wanted.pid_file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK) : -1;
    if (fd < 0) return 0;
    ssize_t got = read(fd, text, sizeof text - 1);
    close(fd);
    return got > 0 ? (pid_t)atol(text) : 0;
}

static void give_up(const char *what) {
    fprintf(stderr, "keeper: %s: %s\n", what, strerror(errno));
    _exit(CANNOT_RUN);
}

static void bind_view(const struct view *view) {
    if (mount(view->source, view->target, NULL, MS_BIND, NULL) < 0) give_up(view->target);
    if (mount(NULL, view->target, NULL, MS_BIND | MS_REMOUNT | view->flags, NULL) < 0) give_up(view->target);
}

/* Only for the program, which ends: a mount namespace that stayed would keep alive what the host unmounts. */
static void arrange(void) {
    if (unshare(CLONE_NEWNS) < 0) give_up("mount namespace");
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0) give_up("private mounts");
    while (wanted.hidden && umount2(wanted.hidden, MNT_DETACH) == 0) continue;
    if (wanted.hidden && errno != EINVAL) give_up(wanted.hidden);
    for (unsigned i = 0; i < viewed; i++) bind_view(&views[i]);
}

static void run(int in, int out, const sigset_t *open) {
    setsid();
    sigprocmask(SIG_SETMASK, open, NULL);
    if (dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0) _exit(CANNOT_RUN);
    if (wanted.apart && unshare(CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS) < 0) give_up("namespaces");
    if (wanted.hidden || viewed) arrange();
    umask(022); /* what the command makes for the jail, its user must get through: the daemon lets nobody */
    execv(wanted.command[0], wanted.command);
    give_up(wanted.command[0]);
}

/* Standard input ends at once, and is a pipe: the program may give what it is to the VMM's user. */
static pid_t start(const sigset_t *open) {
    int in[2], out[2];
    if (pipe2(in, O_CLOEXEC) < 0 || pipe2(out, O_CLOEXEC) < 0) return -1;
    pid_t pid = fork();
    if (pid == 0) run(in[0], out[1], open);
    close(in[0]), close(in[1]), close(out[1]);
    fcntl(out[0], F_SETFL, O_NONBLOCK);
    output = out[0];
    return pid;
}

/* --- the keeper ----------------------------------------------------------------------------------------------- */

/* The wait status of the program and, when it failed, what it said. */
static void answer(int status) {
    char words[WORDS];
    size_t length = status == 0 ? 0 : printed < WORDS ? (size_t)printed : WORDS;
    ssize_t got = pread(wanted.console, words, length, HEAD);
    dprintf(wanted.status, "%d\n%.*s", status, got > 0 ? (int)got : 0, words);
    close(wanted.status);
}

/* From here on only open files are needed, and to be there when memory is short. */
static void settle(void) {
    for (int fd = FIRST_PASSED + 1; fd < FIRST_PASSED + wanted.passed; fd++) close(fd);
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd >= 0) {
        (void)!write(fd, "-1000", 5);
        close(fd);
    }
}

static void become(uid_t uid) {
    if (setgroups(0, NULL) < 0 || setgid(uid) < 0 || setuid(uid) < 0) dprintf(wanted.record, "root %d\n", errno);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
}

static int keep_it(void) {
    sigset_t open, blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGCHLD);
    sigprocmask(SIG_BLOCK, &blocked, &open);
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    dprintf(wanted.record, "keeper %d\n", (int)getpid());
    pid_t program = start(&open);
    for (int signal = SIGHUP; signal <= SIGTERM; signal++) sigaction(signal, &(struct sigaction){.sa_handler = SIG_IGN}, NULL);
    sigaction(SIGCHLD, &(struct sigaction){.sa_handler = wake}, NULL);
    settle();
    int status = program < 0 ? CANNOT_RUN << 8 : await(program, &open);
    drain();
    if (status != 0) {
        answer(status);
        return 1;
    }
    pid_t vmm = find_vmm();
    dprintf(wanted.record, "vmm %d\n", (int)vmm);
    if (wanted.become > 0) become((uid_t)wanted.become);
    answer(0);
    status = await(vmm, &open);
    drain();
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    dprintf(wanted.record, "ended %d %lld\n", status, at.tv_sec * 1000000000LL + at.tv_nsec);
    fdatasync(wanted.record);
    return 0;
}

static void add_view(const char *target, unsigned long flags) {
    views[viewed++] = (struct view){wanted.source, target, flags | MS_NOSUID | MS_NODEV};
}

static int read_options(int argc, char **argv) {
    static const struct option known[] = {
        {"pass", 1, NULL, 'p'}, {"pid", 1, NULL, 'f'}, {"become", 1, NULL, 'b'}, {"hide", 1, NULL, 'h'}, {"apart", 0, NULL, 'a'},
        {"from", 1, NULL, 's'}, {"show", 1, NULL, 'r'}, {"give", 1, NULL, 'w'}, {0},
    };
    for (int option; (option = getopt_long(argc, argv, "+", known, NULL)) != -1;) {
        if (option == 'p') wanted.passed = atoi(optarg);
        else if (option == 'f') wanted.pid_file = optarg;
        else if (option == 'b') wanted.become = atol(optarg);
        else if (option == 'h') wanted.hidden = optarg;
        else if (option == 'a') wanted.apart = 1;
        else if (option == 's') wanted.source = optarg;
        else if (option == 'r' && viewed < VIEWS) add_view(optarg, MS_RDONLY);
        else if (option == 'w' && viewed < VIEWS) add_view(optarg, MS_NOEXEC);
        else return 0;
    }
    wanted.command = argv + optind;
    return *wanted.command != NULL && wanted.passed >= 0;
}

/* Own descriptors are not for the program; what comes after them is nobody's. */
static int take_own(void) {
    int first = FIRST_PASSED + wanted.passed;
    wanted.status = first, wanted.record = first + 1, wanted.console = first + 2;
    syscall(SYS_close_range, first + 3, ~0U, 0);
    for (int fd = first; fd < first + 3; fd++)
        if (fcntl(fd, F_SETFD, FD_CLOEXEC) < 0) return 0;
    return 1;
}

/* Whoever starts it is not kept waiting and has nothing to reap later: the keeper is the child of a child that ends. */
int main(int argc, char **argv) {
    if (!read_options(argc, argv) || !take_own()) {
        fputs("usage: keeper --pass=N [--pid=FILE] [--become=UID] [--hide=MOUNT] [--apart] "
              "[--from=SOURCE --show|--give=TARGET]... -- PROGRAM ARGS\n", stderr);
        return WRONG_USE;
    }
    pid_t keeper = fork();
    if (keeper != 0) return keeper < 0 ? CANNOT_RUN : 0;
    if (setsid() < 0 || chdir("/") < 0) return CANNOT_RUN;
    return keep_it();
}

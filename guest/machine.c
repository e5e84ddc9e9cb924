#include "machine.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "contain.h"
#include "files.h"
#include "loop.h"
#include "output.h"
#include "peer.h"
#include "spawn.h"

enum { REST_TIMEOUT_MS = 2000 }; /* for the other processes, when one has ended by itself */

static struct process {
    struct child child;
    bool running;
} processes[PROCESSES_MAX];

static struct spec spec;
static enum state state = AWAITING;
static struct ending ending;
static int64_t kill_at = -1;
static bool have_ending;

enum state machine_state(void) { return state; }
const struct spec *machine_spec(void) { return &spec; }
const struct ending *machine_ending(void) { return &ending; }
bool machine_ready(void) { return state == RUNNING; }

static size_t running(void) {
    size_t count = 0;
    for (size_t i = 0; i < spec.command_count; i++) count += processes[i].running;
    return count;
}

void machine_signal(int signal) {
    for (size_t i = 0; i < spec.command_count; i++)
        if (processes[i].running) kill(processes[i].child.pid, signal);
}

static void begin_stop(int signal, uint32_t timeout_ms) {
    state = STOPPING;
    machine_signal(signal);
    kill_at = now_ms() + timeout_ms;
}

/* The first end is the machine's; the others are only recorded. */
static void note_end(const struct ending *end) {
    if (!have_ending) ending = *end;
    have_ending = true;
    journal_process_exit(end);
    if (state != STOPPING) begin_stop(SIGTERM, REST_TIMEOUT_MS);
}

static void note_failure(size_t index, const struct failure *why) {
    struct ending end = {.code = why->code, .process = (uint8_t)index, .at_ns = unix_ns()};
    snprintf(end.reason, sizeof end.reason, "%s", why->text);
    note_end(&end);
}

static void look_for_ready(void) {
    for (size_t i = 0; i < spec.command_count; i++)
        if (processes[i].child.status_fd >= 0) return;
    if (state != STARTING) return;
    state = RUNNING;
    journal_ready();
    peers_tell_ready();
}

static void status_ready(void *owner, int fd, short events) {
    struct process *process = owner;
    struct failure why;
    (void)events;
    if (fd != process->child.status_fd) return;
    int status = child_status(&process->child, &why);
    if (status == 0) return;
    if (status < 0) {
        process->running = false; /* its exit status is ours, and said already */
        note_failure((size_t)(process - processes), &why);
    } else
        look_for_ready();
}

/* One chunk from one stream of a process to the ring; false when nothing is there now. */
static bool record_output(struct process *process, int stream) {
    static uint8_t chunk[OUTPUT_CHUNK];
    int *fd = &process->child.out[stream];
    if (*fd < 0) return false;
    ssize_t got = read(*fd, chunk, sizeof chunk);
    if (got > 0) output_add((uint8_t)(stream + 1), (uint8_t)(process - processes), chunk, (size_t)got);
    if (got == 0) close_fd(fd);
    return got > 0;
}

static void output_ready(void *owner, int fd, short events) {
    struct process *process = owner;
    for (int stream = 0; stream < 2; stream++) {
        if (fd != process->child.out[stream]) continue;
        if (!record_output(process, stream) && (events & (POLLHUP | POLLERR))) close_fd(&process->child.out[stream]);
    }
}

static bool start_process(size_t index, struct failure *why) {
    struct process *process = &processes[index];
    if (spawn(&process->child, &spec.commands[index], STDIN_NULL, &spec, why) < 0) return false;
    process->running = true;
    return true;
}

void machine_accept(const struct spec *accepted) {
    struct failure why = {0};
    spec = *accepted;
    for (size_t i = 0; i < PROCESSES_MAX; i++)
        processes[i] = (struct process){.child = {.pid = -1, .status_fd = -1, .in = -1, .out = {-1, -1}}};
    journal_accepted(spec.instance);
    output_set_limit(spec.output_limit);
    state = STARTING;
    if (spec.contained) {
        contain(spec.hostname);
        if (files_write(&spec, &why) < 0) {
            note_failure(0, &why);
            return;
        }
    }
    for (size_t i = 0; i < spec.command_count; i++)
        if (!start_process(i, &why)) {
            note_failure(i, &why);
            return;
        }
}

void machine_stop(int signal, uint32_t timeout_ms) {
    if (state == AWAITING) {
        ending = (struct ending){.code = 128 + SIGTERM, .signal = SIGTERM, .at_ns = unix_ns()};
        strcpy(ending.reason, "stopped before it started");
        have_ending = true;
        state = STOPPING;
    } else if (state != EXITED)
        begin_stop(signal ? signal : spec.stop_signal, signal ? timeout_ms : spec.stop_timeout_ms);
}

bool machine_reaped(pid_t pid, int status) {
    for (size_t i = 0; i < spec.command_count; i++) {
        struct process *process = &processes[i];
        if (!process->running || process->child.pid != pid) continue;
        if (process->child.status_fd >= 0) status_ready(process, process->child.status_fd, POLLIN);
        if (!process->running) return true;
        process->running = false;
        uint32_t signal = WIFSIGNALED(status) ? (uint32_t)WTERMSIG(status) : 0;
        struct ending end = {.signal = signal, .process = (uint8_t)i, .at_ns = unix_ns()};
        end.code = signal ? 128 + signal : (uint32_t)WEXITSTATUS(status);
        note_end(&end);
        return true;
    }
    return false;
}

void machine_watch(void) {
    if (kill_at >= 0) loop_wake_at(kill_at);
    for (size_t i = 0; i < spec.command_count; i++) {
        struct process *process = &processes[i];
        loop_watch(process->child.status_fd, POLLIN, status_ready, process);
        for (int stream = 0; stream < 2; stream++)
            loop_watch(process->child.out[stream], POLLIN, output_ready, process);
    }
}

bool machine_over(void) {
    if (state != STOPPING) return false;
    return running() == 0 || (kill_at >= 0 && now_ms() >= kill_at);
}

void machine_drain(void) {
    for (size_t i = 0; i < spec.command_count; i++)
        for (int stream = 0; stream < 2; stream++)
            for (int most = 0; most < 64 && record_output(&processes[i], stream); most++) {}
}

void machine_finish(void) {
    state = EXITED;
    if (!have_ending) ending = (struct ending){.code = 128 + SIGKILL, .signal = SIGKILL, .at_ns = unix_ns()};
    journal_final_exit(&ending);
}

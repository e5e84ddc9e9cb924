#include "process.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include "descent.h"
#include "loop.h"
#include "output.h"
#include "peer.h"
#include "session.h"

void process_init(struct process *process, const struct command *command, size_t index, void (*executed)(struct process *)) {
    *process = (struct process){.command = command, .run = {.process = (uint8_t)index}, .kill_at = -1, .executed = executed};
    process->child = (struct child){.pid = -1, .status_fd = -1, .in = -1, .out = {-1, -1}};
}

bool process_goes_on(const struct process *process) {
    return process->run.state == BEGUN || process->run.state == EXECUTED;
}

/* What an earlier run still had to say comes first; who holds its pipes after that writes to nobody. */
int process_begin(struct process *process, const struct spec *spec, struct failure *why) {
    process_drain(process);
    child_close(&process->child);
    process->run.number++;
    process->run.started_ns = unix_ns();
    process->kill_at = -1;
    enum stdin_use use = process->command->interactive ? STDIN_OPEN : STDIN_NULL;
    int result = spawn(&process->child, process->command, use, spec, why);
    process->run.pid = result < 0 ? 0 : (uint32_t)process->child.pid;
    process->run.state = BEGUN;
    return result;
}

int process_executed(struct process *process, struct failure *why) {
    int status = child_status(&process->child, why);
    if (status > 0 && process->run.state == BEGUN) process->run.state = EXECUTED;
    return status;
}

void process_end(struct process *process, const struct ending *ending) {
    process->run.state = ENDED;
    process->run.ended_once = true;
    process->run.ending = *ending;
    process->kill_at = -1;
}

void process_stop(struct process *process, int signal, uint32_t timeout_ms) {
    if (!process_goes_on(process)) return;
    kill(process->child.pid, signal);
    process->kill_at = now_ms() + timeout_ms;
}

void process_tick(struct process *process) {
    if (process->kill_at < 0) return;
    if (now_ms() < process->kill_at) {
        loop_wake_at(process->kill_at);
        return;
    }
    process->kill_at = -1;
    kill(process->child.pid, SIGKILL);
    process_kill_rest(process);
}

void process_kill_rest(const struct process *process) {
    if (process->child.pid <= 0) return;
    sessions_kill(process->command->mark);
    kill_relatives(process->child.pid, process->command->mark);
}

/* --- output --------------------------------------------------------------------------------------------------- */

static const struct listener *listener;

void process_listen(const struct listener *given) { listener = given; }

/* One chunk of `most` bytes from one stream of a process to the ring and the listener; false when nothing is there now.
 * Only what is read says that a stream has ended: what was polled may be of the run before, whose descriptor had the
 * same number. */
static bool record_output(struct process *process, int stream, size_t most) {
    static uint8_t chunk[OUTPUT_CHUNK];
    int *fd = &process->child.out[stream];
    if (*fd < 0) return false;
    ssize_t got = read(*fd, chunk, most < sizeof chunk ? most : sizeof chunk);
    if (got > 0) output_add((uint8_t)(stream + 1), process->run.process, chunk, (size_t)got);
    if (got > 0) listener->hear(process, stream, chunk, (size_t)got);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) close_fd(fd);
    return got > 0;
}

static void output_ready(void *owner, int fd, short events) {
    struct process *process = owner;
    (void)events;
    for (int stream = 0; stream < 2; stream++)
        if (fd == process->child.out[stream] && listener->room(process))
            (void)record_output(process, stream, listener->room(process));
}

bool process_read(struct process *process) {
    bool found = false;
    for (int stream = 0; stream < 2; stream++)
        if (listener->room(process)) found |= record_output(process, stream, listener->room(process));
    return found;
}

static void status_ready(void *owner, int fd, short events) {
    struct process *process = owner;
    (void)events;
    if (fd == process->child.status_fd) process->executed(process);
}

void process_watch(struct process *process) {
    loop_watch(process->child.status_fd, POLLIN, status_ready, process);
    if (!listener->room(process)) return;
    for (int stream = 0; stream < 2; stream++)
        loop_watch(process->child.out[stream], POLLIN, output_ready, process);
}

void process_drain(struct process *process) {
    for (int stream = 0; stream < 2; stream++)
        for (int most = 0; most < 64 && record_output(process, stream, OUTPUT_CHUNK); most++) {}
}

static void put_state(struct buffer *payload, const struct process *process) {
    const struct run *run = &process->run;
    put_number(payload, run->process, 1);
    put_number(payload, run->state, 1);
    put_number(payload, run->number, 4);
    put_number(payload, process_goes_on(process) ? run->pid : 0, 4);
    put_number(payload, run->started_ns, 8);
    put_number(payload, run->ended_once, 1);
    if (run->ended_once) put_ending(payload, &run->ending);
}

void process_tell(const struct process *process, struct peer *peer, uint32_t channel) {
    struct buffer payload = {.max = 1024};
    put_state(&payload, process);
    peer_send(peer, FRAME_STATE, channel, buffer_head(&payload), payload.used);
    buffer_free(&payload);
}

void process_tell_watchers(const struct process *process) {
    struct buffer payload = {.max = 1024};
    put_state(&payload, process);
    peers_tell_watchers(FRAME_STATE, &payload);
    buffer_free(&payload);
}

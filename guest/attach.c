#include "attach.h"

#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>

#include "input.h"
#include "loop.h"
#include "machine.h"
#include "output.h"
#include "peer.h"
#include "session.h"

enum { LAST_READ_MS = 10000 }; /* how long the machine waits, at its end, for a peer that reads slowly */

static struct attachment {
    struct peer *peer; /* NULL: nobody is attached */
    uint32_t channel;
    uint32_t run;
    uint32_t credit; /* bytes we may still send */
    struct process *process;
    struct input input;
    int64_t until; /* when it must have read what an ended process left; -1: that goes on */
} attachments[PROCESSES_MAX];

static struct attachment *of(const struct process *process) { return &attachments[process->run.process]; }

/* --- output --------------------------------------------------------------------------------------------------- */

static size_t room(const struct process *process) {
    const struct attachment *attached = of(process);
    if (!attached->peer) return OUTPUT_CHUNK;
    return peer_has_room(attached->peer) ? attached->credit : 0;
}

static void hear(const struct process *process, int stream, const void *bytes, size_t length) {
    struct attachment *attached = of(process);
    if (!attached->peer || attached->credit < length) return; /* what comes too late is in the ring */
    attached->credit -= (uint32_t)length;
    peer_send(attached->peer, stream == 0 ? FRAME_STDOUT : FRAME_STDERR, attached->channel, bytes, length);
}

static const struct listener listener = {.room = room, .hear = hear};

void attach_open_all(void) { process_listen(&listener); }

/* --- to the process ------------------------------------------------------------------------------------------- */

static void tell_where(const struct attachment *attached) {
    uint8_t position[8];
    store_number(position, output_position(), sizeof position);
    peer_send(attached->peer, FRAME_ATTACHED, attached->channel, position, sizeof position);
}

const char *attach_begin(struct peer *peer, uint32_t channel, struct process *process, uint16_t rows, uint16_t cols) {
    struct attachment *attached = of(process);
    if (!process->command->interactive) return "its input is not open";
    if (!process_goes_on(process)) return "it is not running";
    if (attached->peer) return "another client is attached to it";
    *attached = (struct attachment){.peer = peer, .channel = channel, .run = process->run.number, .credit = OUT_WINDOW, .process = process, .until = -1};
    input_begin(&attached->input, &process->child.in, peer, channel);
    tell_where(attached);
    if (rows && cols) attach_resize(attached, rows, cols);
    return NULL;
}

struct attachment *attach_find(const struct peer *peer, uint32_t channel) {
    for (size_t i = 0; i < PROCESSES_MAX; i++)
        if (attachments[i].peer == peer && attachments[i].channel == channel) return &attachments[i];
    return NULL;
}

bool attach_input(struct attachment *attached, const uint8_t *bytes, size_t length) {
    return input_add(&attached->input, bytes, length);
}

void attach_input_end(struct attachment *attached) { input_end(&attached->input, attached->process->command->tty); }

void attach_resize(struct attachment *attached, uint16_t rows, uint16_t cols) {
    struct winsize size = {.ws_row = rows, .ws_col = cols};
    const struct process *process = attached->process;
    if (process->command->tty && process->child.out[0] >= 0) (void)ioctl(process->child.out[0], TIOCSWINSZ, &size);
}

void attach_signal(struct attachment *attached, int signal) {
    if (process_goes_on(attached->process)) kill(attached->process->child.pid, signal);
}

bool attach_credit(struct attachment *attached, uint32_t bytes) {
    if (bytes > OUT_WINDOW || attached->credit + bytes > OUT_WINDOW) return false;
    attached->credit += bytes;
    return true;
}

/* --- the end -------------------------------------------------------------------------------------------------- */

void attach_leave(struct attachment *attached) {
    input_free(&attached->input);
    attached->peer = NULL;
}

void attach_lost(const struct peer *peer) {
    for (size_t i = 0; i < PROCESSES_MAX; i++)
        if (attachments[i].peer == peer) attach_leave(&attachments[i]);
}

static bool has_ended(const struct attachment *attached) {
    return attached->peer && (!process_goes_on(attached->process) || attached->process->run.number != attached->run);
}

/* Whether its client has given back all credit: what is sent and not read can be lost with the machine. */
static bool all_is_read(const struct attachment *attached) { return attached->credit == OUT_WINDOW; }

static void tell_end(struct attachment *attached) {
    peer_send_ending(attached->peer, attached->channel, &attached->process->run.ending);
    attach_leave(attached);
}

/* What is in its pipes is told first. */
void attach_tick(void) {
    for (size_t i = 0; i < PROCESSES_MAX; i++) {
        struct attachment *attached = &attachments[i];
        if (!has_ended(attached)) continue;
        if (attached->until < 0) attached->until = now_ms() + LAST_READ_MS;
        while (process_read(attached->process)) {}
        if (all_is_read(attached) || now_ms() >= attached->until) tell_end(attached);
    }
}

bool attach_has_more(void) {
    for (size_t i = 0; i < PROCESSES_MAX; i++)
        if (has_ended(&attachments[i]) && (attachments[i].until < 0 || now_ms() < attachments[i].until)) return true;
    return false;
}

void attach_watch(void) {
    for (size_t i = 0; i < PROCESSES_MAX; i++) {
        if (!attachments[i].peer) continue;
        if (attachments[i].until >= 0) loop_wake_at(attachments[i].until);
        input_watch(&attachments[i].input);
    }
}

void attach_finish(void) {
    for (size_t i = 0; i < PROCESSES_MAX; i++)
        if (attachments[i].peer) tell_end(&attachments[i]);
}

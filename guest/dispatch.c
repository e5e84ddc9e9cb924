#include "dispatch.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "attach.h"
#include "machine.h"
#include "process_list.h"
#include "session.h"
#include "upkeep.h"

static void answer_spec(struct peer *peer, const char *instance) {
    char why[160];
    if (!machine_spec()->instance) return; /* it was stopped before: its exit, which comes now, is the answer */
    if (strcmp(instance, machine_spec()->instance) != 0) {
        snprintf(why, sizeof why, "instance %.64s runs here", machine_spec()->instance);
        peer_refuse(peer, 0, why);
    } else if (machine_ready())
        peer_send(peer, FRAME_READY, 0, "", 0);
}

/* The whole spec is here. It is accepted once and then ours; the same again is answered with the state. */
static void take_spec(struct peer *peer) {
    struct buffer *bytes = peer_spec(peer);
    struct spec spec;
    if (!spec_parse(&spec, buffer_head(bytes), bytes->used)) {
        peer_refuse(peer, 0, "malformed run spec");
        buffer_free(bytes);
    } else if (machine_state() == AWAITING) {
        machine_accept(&spec);
        *bytes = (struct buffer){.max = bytes->max};
    } else {
        answer_spec(peer, spec.instance);
        spec_free(&spec);
        buffer_free(bytes);
    }
}

static bool take_spec_part(struct peer *peer, struct cursor *payload) {
    bool last = take_number(payload, 1) & 1;
    if (payload->failed || !buffer_add(peer_spec(peer), payload->at, (size_t)(payload->end - payload->at))) return false;
    if (last) take_spec(peer);
    return true;
}

static bool take_stop(struct cursor *payload) {
    int signal = (int)take_number(payload, 1);
    uint32_t timeout_ms = (uint32_t)take_number(payload, 4);
    if (payload->failed || signal >= NSIG) return false;
    machine_stop(signal, timeout_ms);
    return true;
}

static bool take_exec(struct peer *peer, uint32_t channel, struct cursor *payload) {
    if (channel == 0 || session_find(peer, channel)) return false;
    if (machine_state() == RUNNING) return session_open(peer, channel, payload, machine_spec());
    peer_refuse(peer, channel, "the machine is not running");
    return true;
}

static bool take_signal(struct session *session, struct attachment *attached, uint32_t channel, struct cursor *payload) {
    int signal = (int)take_number(payload, 1);
    if (payload->failed || signal < 1 || signal >= NSIG) return false;
    if (channel == 0)
        machine_signal(signal);
    else if (session)
        session_signal(session, signal);
    else if (attached)
        attach_signal(attached, signal);
    return true;
}

static bool for_attached(struct attachment *attached, enum frame type, struct cursor *payload) {
    switch (type) {
    case FRAME_STDIN:
        return attach_input(attached, payload->at, (size_t)(payload->end - payload->at));
    case FRAME_STDIN_END:
        attach_input_end(attached);
        return true;
    case FRAME_CREDIT: {
        uint32_t bytes = (uint32_t)take_number(payload, 4);
        return !payload->failed && attach_credit(attached, bytes);
    }
    case FRAME_RESIZE: {
        uint16_t rows = (uint16_t)take_number(payload, 2), cols = (uint16_t)take_number(payload, 2);
        attach_resize(attached, rows, cols);
        return !payload->failed;
    }
    default:
        attach_leave(attached);
        return true;
    }
}

/* A frame for a session that has just ended crosses our exit frame on the way: it is no error. */
static bool for_session(struct session *session, enum frame type, struct cursor *payload) {
    if (!session) return true;
    switch (type) {
    case FRAME_STDIN:
        return session_input(session, payload->at, (size_t)(payload->end - payload->at));
    case FRAME_STDIN_END:
        session_input_end(session);
        return true;
    case FRAME_CREDIT: {
        uint32_t bytes = (uint32_t)take_number(payload, 4);
        return !payload->failed && session_credit(session, bytes);
    }
    case FRAME_RESIZE: {
        uint16_t rows = (uint16_t)take_number(payload, 2), cols = (uint16_t)take_number(payload, 2);
        session_resize(session, rows, cols);
        return !payload->failed;
    }
    default:
        session_hang_up(session);
        return true;
    }
}

/* --- one process of the machine: version 2 ------------------------------------------------------------------- */

static void watch(struct peer *peer, uint32_t channel) {
    struct process *process;
    for (size_t i = 0; (process = machine_process(i)); i++) process_tell(process, peer, channel);
    peer_send(peer, FRAME_WATCHING, channel, "", 0);
    peer_watch(peer, channel);
}

/* A run that is begun is told to those who watch before it is executed; the answer comes in any case. */
static bool take_run(struct peer *peer, uint32_t channel, struct process *process, struct cursor *payload) {
    uint32_t number = (uint32_t)take_number(payload, 4);
    if (payload->failed) return false;
    const char *why = machine_run(process, number);
    if (why)
        peer_refuse(peer, channel, why);
    else
        process_tell(process, peer, channel);
    return true;
}

static bool take_end(struct peer *peer, uint32_t channel, struct process *process, struct cursor *payload) {
    int signal = (int)take_number(payload, 1);
    uint32_t timeout_ms = (uint32_t)take_number(payload, 4);
    if (payload->failed || signal < 1 || signal >= NSIG) return false;
    process_stop(process, signal, timeout_ms);
    process_tell(process, peer, channel);
    return true;
}

static bool take_conclude(struct peer *peer, uint32_t channel, const struct process *process) {
    const char *why = machine_conclude(process);
    if (why) peer_refuse(peer, channel, why);
    return true;
}

static bool for_process(struct peer *peer, enum frame type, uint32_t channel, struct cursor *payload) {
    if (!peer_speaks(peer, 2) || channel == 0) return false;
    if (type == FRAME_WATCH) {
        watch(peer, channel);
        return true;
    }
    struct process *process = machine_process((size_t)take_number(payload, 1));
    if (payload->failed) return false;
    if (!process) {
        peer_refuse(peer, channel, "no such process");
        return true;
    }
    if (type == FRAME_RUN) return take_run(peer, channel, process, payload);
    return type == FRAME_END ? take_end(peer, channel, process, payload) : take_conclude(peer, channel, process);
}

static bool take_attach(struct peer *peer, uint32_t channel, struct cursor *payload) {
    struct process *process = machine_process((size_t)take_number(payload, 1));
    uint16_t rows = (uint16_t)take_number(payload, 2), cols = (uint16_t)take_number(payload, 2);
    if (!peer_speaks(peer, 4) || channel == 0 || session_find(peer, channel) || attach_find(peer, channel) || payload->failed)
        return false;
    const char *why = process ? attach_begin(peer, channel, process, rows, cols) : "no such process";
    if (why) peer_refuse(peer, channel, why);
    return true;
}

bool dispatch(struct peer *peer, enum frame type, uint32_t channel, struct cursor *payload) {
    struct session *session = channel ? session_find(peer, channel) : NULL;
    struct attachment *attached = channel && !session ? attach_find(peer, channel) : NULL;
    switch (type) {
    case FRAME_SPEC:
        return take_spec_part(peer, payload);
    case FRAME_STOP:
        return take_stop(payload);
    case FRAME_SIGNAL:
        return take_signal(session, attached, channel, payload);
    case FRAME_EXEC:
        return take_exec(peer, channel, payload);
    case FRAME_LIST:
        list_processes(peer, channel);
        return true;
    case FRAME_WATCH:
    case FRAME_RUN:
    case FRAME_END:
    case FRAME_CONCLUDE:
        return for_process(peer, type, channel, payload);
    case FRAME_ATTACH:
        return take_attach(peer, channel, payload);
    case FRAME_CLOCK:
    case FRAME_FREEZE:
    case FRAME_THAW:
    case FRAME_GROW:
    case FRAME_MEMORY:
    case FRAME_USAGE:
        return peer_speaks(peer, 3) && channel != 0 && upkeep_take(peer, type, channel, payload);
    case FRAME_TRIM:
        return peer_speaks(peer, 5) && channel != 0 && upkeep_take(peer, type, channel, payload);
    case FRAME_STDIN:
    case FRAME_STDIN_END:
    case FRAME_CREDIT:
    case FRAME_RESIZE:
    case FRAME_CLOSE:
        return attached ? for_attached(attached, type, payload) : for_session(session, type, payload);
    default:
        return false;
    }
}

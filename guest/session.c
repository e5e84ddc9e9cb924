#include "session.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "input.h"
#include "loop.h"
#include "output.h"
#include "peer.h"
#include "spawn.h"

enum { GRACE_MS = 2000 };

struct session {
    struct session *next;
    struct peer *peer; /* NULL once nobody listens */
    uint32_t channel;
    struct child child;
    unsigned mark; /* of the container that it is to run in; 0: none */
    bool terminal;
    bool running;
    bool reported;
    struct input input;
    uint32_t credit; /* bytes we may still send */
    int64_t kill_at;
    struct ending ending;
};

static struct session *sessions;
static size_t session_count;

struct session *session_find(const struct peer *peer, uint32_t channel) {
    for (struct session *session = sessions; session; session = session->next)
        if (session->peer == peer && session->channel == channel && !session->reported) return session;
    return NULL;
}

static void refuse(struct peer *peer, uint32_t channel, const struct failure *why) {
    struct ending ending = {.code = why->code, .at_ns = unix_ns()};
    memcpy(ending.reason, why->text, sizeof why->text);
    peer_send_ending(peer, channel, &ending);
}

static struct session *start(const struct command *command, const struct spec *spec, struct failure *why) {
    struct session *session = calloc(1, sizeof *session);
    if (!session || spawn(&session->child, command, STDIN_OPEN, spec, why) < 0) {
        free(session);
        return NULL;
    }
    session->running = true;
    session->terminal = command->tty;
    session->mark = command->mark;
    session->kill_at = -1;
    session->credit = OUT_WINDOW;
    session->next = sessions;
    sessions = session;
    session_count++;
    return session;
}

bool session_open(struct peer *peer, uint32_t channel, struct cursor *request, const struct spec *spec) {
    struct failure why = {.code = CANNOT_RUN};
    struct command command;
    bool good = command_merge(&command, request, spec);
    if (good && session_count == SESSIONS_MAX) {
        fail_with(&why, CANNOT_RUN, "exec", command.argv[0], ": too many sessions");
        refuse(peer, channel, &why);
    } else if (good) {
        struct session *session = start(&command, spec, &why);
        if (session) {
            session->peer = peer;
            session->channel = channel;
            input_begin(&session->input, &session->child.in, peer, channel);
        } else
            refuse(peer, channel, &why);
    }
    command_free(&command);
    return good;
}

/* --- to the command ------------------------------------------------------------------------------------------- */

bool session_input(struct session *session, const uint8_t *bytes, size_t length) {
    return input_add(&session->input, bytes, length);
}

void session_input_end(struct session *session) { input_end(&session->input, session->terminal); }

void session_resize(struct session *session, uint16_t rows, uint16_t cols) {
    struct winsize size = {.ws_row = rows, .ws_col = cols};
    if (session->child.out[0] >= 0) (void)ioctl(session->child.out[0], TIOCSWINSZ, &size);
}

void session_signal(struct session *session, int signal) {
    if (session->running) kill(session->child.pid, signal);
}

/* --- from the command ----------------------------------------------------------------------------------------- */

bool session_credit(struct session *session, uint32_t bytes) {
    if (bytes > OUT_WINDOW || session->credit + bytes > OUT_WINDOW) return false;
    session->credit += bytes;
    return true;
}

/* Up to one chunk; false when nothing was there, so that the end of a dead command can be told from a pause. */
static bool relay(struct session *session, int stream) {
    static uint8_t chunk[OUTPUT_CHUNK];
    int *fd = &session->child.out[stream];
    size_t most = session->credit < sizeof chunk ? session->credit : sizeof chunk;
    if (*fd < 0) return false;
    if (most == 0) return true;
    ssize_t got = read(*fd, chunk, most);
    if (got == 0) close_fd(fd);
    if (got <= 0) return false;
    session->credit -= (uint32_t)got;
    peer_send(session->peer, stream == 0 ? FRAME_STDOUT : FRAME_STDERR, session->channel, chunk, (size_t)got);
    return true;
}

static void output_ready(void *owner, int fd, short events) {
    struct session *session = owner;
    for (int stream = 0; stream < 2; stream++) {
        if (fd != session->child.out[stream]) continue;
        if (!relay(session, stream) && (events & (POLLHUP | POLLERR))) close_fd(&session->child.out[stream]);
    }
}

static void status_ready(void *owner, int fd, short events) {
    struct session *session = owner;
    struct failure why;
    (void)events;
    if (fd != session->child.status_fd || child_status(&session->child, &why) >= 0) return;
    memcpy(session->ending.reason, why.text, sizeof why.text);
}

/* --- the end -------------------------------------------------------------------------------------------------- */

static void report(struct session *session) {
    if (session->peer) peer_send_ending(session->peer, session->channel, &session->ending);
    session->reported = true;
}

/* All it wrote is in the pipes by now; a background child that holds them open does not keep the session. */
static void finish(struct session *session) {
    for (int stream = 0; stream < 2; stream++)
        while (session->peer && peer_has_room(session->peer) && relay(session, stream))
            if (session->credit == 0) return;
    if (session->peer && !peer_has_room(session->peer)) return;
    report(session);
}

void session_hang_up(struct session *session) {
    session->peer = NULL;
    if (!session->running) return;
    kill(-session->child.pid, SIGHUP);
    session->kill_at = now_ms() + GRACE_MS;
}

void sessions_lost(const struct peer *peer) {
    for (struct session *session = sessions; session; session = session->next)
        if (session->peer == peer) session_hang_up(session);
}

bool sessions_reaped(pid_t pid, int status) {
    for (struct session *session = sessions; session; session = session->next) {
        if (!session->running || session->child.pid != pid) continue;
        if (session->child.status_fd >= 0) status_ready(session, session->child.status_fd, POLLIN);
        uint32_t signal = WIFSIGNALED(status) ? (uint32_t)WTERMSIG(status) : 0;
        session->running = false;
        session->ending.signal = signal;
        session->ending.code = signal ? 128 + signal : (uint32_t)WEXITSTATUS(status);
        session->ending.at_ns = unix_ns();
        if (!session->peer) kill(-pid, SIGKILL); /* what it left behind in its session has no terminal any more */
        return true;
    }
    return false;
}

static void sweep(void) {
    for (struct session **at = &sessions; *at;) {
        struct session *session = *at;
        if (session->running || !(session->reported || !session->peer)) {
            at = &session->next;
            continue;
        }
        *at = session->next;
        child_close(&session->child);
        input_free(&session->input);
        free(session);
        session_count--;
    }
}

void sessions_tick(void) {
    for (struct session *session = sessions; session; session = session->next) {
        if (session->running && session->kill_at >= 0 && now_ms() >= session->kill_at) {
            kill(-session->child.pid, SIGKILL);
            session->kill_at = -1;
        }
        if (!session->running && session->peer && !session->reported) finish(session);
    }
    sweep();
}

void sessions_kill(unsigned mark) {
    for (struct session *session = sessions; mark && session; session = session->next)
        if (session->running && session->mark == mark) kill(session->child.pid, SIGKILL);
}

void sessions_watch(void) {
    for (struct session *session = sessions; session; session = session->next) {
        if (session->kill_at >= 0) loop_wake_at(session->kill_at);
        loop_watch(session->child.status_fd, POLLIN, status_ready, session);
        if (!session->peer) continue;
        input_watch(&session->input);
        if (session->credit == 0 || !peer_has_room(session->peer)) continue;
        for (int stream = 0; stream < 2; stream++)
            loop_watch(session->child.out[stream], POLLIN, output_ready, session);
    }
}

void sessions_finish(void) {
    for (struct session *session = sessions; session; session = session->next) {
        if (session->running) session->ending = (struct ending){.code = 128 + SIGKILL, .signal = SIGKILL, .at_ns = unix_ns()};
        if (session->peer && !session->reported) finish(session);
        if (session->peer && !session->reported) report(session);
    }
}

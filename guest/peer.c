#include "peer.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "dispatch.h"
#include "loop.h"
#include "machine.h"
#include "session.h"
#include "spawn.h"

enum { QUEUE_MAX = 1 << 20, BULK_MAX = 256 << 10 };

struct peer {
    int fd;
    bool greeted;
    bool mute; /* it reads no more, but what it said before that still counts */
    bool dropped;
    struct buffer in;
    struct buffer out;
    struct buffer spec;
};

static struct peer *peers[PEERS_MAX];
static int listener = -1;

struct buffer *peer_spec(struct peer *peer) { return &peer->spec; }
bool peer_has_room(const struct peer *peer) { return peer->out.used < BULK_MAX; }
void peer_drop(struct peer *peer) { peer->dropped = true; }

/* --- out ------------------------------------------------------------------------------------------------------ */

static void flush(struct peer *peer) {
    while (peer->out.used && !peer->mute) {
        ssize_t written = write(peer->fd, buffer_head(&peer->out), peer->out.used);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0 && errno != EAGAIN) peer->mute = true;
        if (written <= 0) break;
        buffer_consume(&peer->out, (size_t)written);
    }
    if (peer->mute) buffer_consume(&peer->out, peer->out.used);
}

void peer_send(struct peer *peer, enum frame type, uint32_t channel, const void *payload, size_t length) {
    uint8_t head[FRAME_HEAD];
    if (!peer || peer->dropped || peer->mute) return;
    store_number(head, length + 5, 4);
    head[4] = (uint8_t)type;
    store_number(head + 5, channel, 4);
    if (!buffer_add(&peer->out, head, sizeof head) || !buffer_add(&peer->out, payload, length)) peer_drop(peer);
}

static void send_buffer(struct peer *peer, enum frame type, uint32_t channel, struct buffer *payload) {
    peer_send(peer, type, channel, buffer_head(payload), payload->used);
    buffer_free(payload);
}

void peer_send_ending(struct peer *peer, uint32_t channel, const struct ending *ending) {
    struct buffer payload = {.max = 1024};
    put_ending(&payload, ending);
    send_buffer(peer, FRAME_EXIT, channel, &payload);
}

void peer_send_credit(struct peer *peer, uint32_t channel, uint32_t bytes) {
    uint8_t payload[4];
    store_number(payload, bytes, sizeof payload);
    if (bytes) peer_send(peer, FRAME_CREDIT, channel, payload, sizeof payload);
}

void peer_refuse(struct peer *peer, uint32_t channel, const char *why) {
    struct buffer payload = {.max = 1024};
    put_string(&payload, why);
    send_buffer(peer, FRAME_REFUSED, channel, &payload);
}

static void send_hello(struct peer *peer) {
    struct buffer payload = {.max = 1024};
    put_number(&payload, PROTOCOL_MAGIC, 4);
    put_number(&payload, PROTOCOL_VERSION, 2);
    put_number(&payload, machine_state(), 1);
    put_string(&payload, machine_state() == AWAITING ? "" : machine_spec()->instance);
    send_buffer(peer, FRAME_HELLO, 0, &payload);
}

void peers_tell_ready(void) {
    for (int i = 0; i < PEERS_MAX; i++)
        if (peers[i]) peer_send(peers[i], FRAME_READY, 0, "", 0);
}

void peers_tell_exit(void) {
    for (int i = 0; i < PEERS_MAX; i++)
        if (peers[i]) peer_send_ending(peers[i], 0, machine_ending());
}

/* --- in ------------------------------------------------------------------------------------------------------- */

static bool greet(struct peer *peer, enum frame type, struct cursor *payload) {
    uint64_t magic = take_number(payload, 4), version = take_number(payload, 2);
    peer->greeted = type == FRAME_HELLO && !payload->failed && magic == PROTOCOL_MAGIC && version >= 1;
    return peer->greeted;
}

/* One frame, when all of it is here: 1. Not yet: 0. Nothing a peer may send: -1. */
static int take_frame(struct peer *peer) {
    struct cursor cursor = {.at = buffer_head(&peer->in), .end = buffer_head(&peer->in) + peer->in.used};
    size_t length = peer->in.used < 4 ? 0 : (size_t)take_number(&cursor, 4);
    if (peer->in.used < 4) return 0;
    if (length < FRAME_HEAD - 4 || length > FRAME_MAX) return -1;
    if (peer->in.used < length + 4) return 0;
    cursor.end = cursor.at + length;
    enum frame type = (enum frame)take_number(&cursor, 1);
    uint32_t channel = (uint32_t)take_number(&cursor, 4);
    bool good = peer->greeted ? dispatch(peer, type, channel, &cursor) : greet(peer, type, &cursor);
    buffer_consume(&peer->in, length + 4);
    return good ? 1 : -1;
}

static void take_frames(struct peer *peer) {
    int taken = 1;
    while (taken > 0 && !peer->dropped) taken = take_frame(peer);
    if (taken >= 0) return;
    peer_refuse(peer, 0, "protocol error");
    peer_drop(peer);
}

static void peer_ready(void *owner, int fd, short events) {
    static uint8_t bytes[FRAME_MAX];
    struct peer *peer = owner;
    if (fd != peer->fd || peer->dropped) return;
    if (events & POLLOUT) flush(peer);
    if (!(events & (POLLIN | POLLHUP | POLLERR))) return;
    ssize_t got = read(fd, bytes, sizeof bytes);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0 || !buffer_add(&peer->in, bytes, (size_t)got))
        peer_drop(peer);
    else
        take_frames(peer);
}

/* --- coming and going ----------------------------------------------------------------------------------------- */

void peers_add(int fd) {
    for (int i = 0; i < PEERS_MAX; i++) {
        if (peers[i]) continue;
        struct peer *peer = calloc(1, sizeof *peer);
        if (!peer) break;
        *peer = (struct peer){.fd = fd, .in = {.max = 2 * (FRAME_MAX + 4)}, .out = {.max = QUEUE_MAX}, .spec = {.max = SPEC_MAX}};
        (void)fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
        peers[i] = peer;
        send_hello(peer);
        return;
    }
    close(fd);
}

static void accept_ready(void *owner, int fd, short events) {
    (void)owner, (void)events;
    int accepted = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (accepted >= 0) peers_add(accepted);
}

/* Listening again makes the kernel tell whoever connects our process id, instead of that of the daemon that made the
 * socket: a later daemon knows us by it. */
void peers_listen(int fd) {
    listener = fd;
    (void)listen(fd, PEERS_MAX);
    (void)fcntl(fd, F_SETFL, O_NONBLOCK);
}

void peers_watch(void) {
    loop_watch(listener, POLLIN, accept_ready, NULL);
    for (int i = 0; i < PEERS_MAX; i++)
        if (peers[i]) loop_watch(peers[i]->fd, (short)(POLLIN | (peers[i]->out.used ? POLLOUT : 0)), peer_ready, peers[i]);
}

void peers_tick(void) {
    for (int i = 0; i < PEERS_MAX; i++) {
        struct peer *peer = peers[i];
        if (!peer) continue;
        flush(peer);
        if (!peer->dropped) continue;
        sessions_lost(peer);
        close_fd(&peer->fd);
        buffer_free(&peer->in);
        buffer_free(&peer->out);
        buffer_free(&peer->spec);
        free(peer);
        peers[i] = NULL;
    }
}

void peers_flush(int64_t deadline_ms) {
    for (int i = 0; i < PEERS_MAX; i++) {
        struct peer *peer = peers[i];
        for (; peer; flush(peer)) {
            flush(peer);
            int64_t left = deadline_ms - now_ms();
            struct pollfd wait = {.fd = peer->fd, .events = POLLOUT};
            if (!peer->out.used || peer->mute || left <= 0 || poll(&wait, 1, (int)left) <= 0) break;
        }
    }
}

#include "peer.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/vm_sockets.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "loop.h"
#include "spawn.h"

enum { QUEUE_MAX = 1 << 20, BULK_MAX = 256 << 10 };

struct peer {
    int fd;                        /* of its own; -1: it is carried, or was */
    const struct carrier *carrier; /* NULL: none */
    void *owner;                   /* the carrier's */
    bool greeted;
    bool mute; /* it reads no more, but what it said before that still counts */
    bool dropped;
    unsigned version; /* the highest that both speak */
    uint32_t watch;   /* channel; 0: none */
    struct buffer in;
    struct buffer out;
    struct buffer spec;
};

static const struct peer_handlers *handlers;
static struct peer *peers[PEERS_MAX];
static int listener = -1;

struct buffer *peer_spec(struct peer *peer) { return &peer->spec; }
bool peer_has_room(const struct peer *peer) { return peer->out.used < BULK_MAX; }
void peer_drop(struct peer *peer) { peer->dropped = true; }
void peer_watch(struct peer *peer, uint32_t channel) { peer->watch = channel; }
bool peer_speaks(const struct peer *peer, unsigned version) { return peer->version >= version; }

/* --- out ------------------------------------------------------------------------------------------------------ */

/* How much of what is queued was taken; 0: no more for now. */
static size_t put(struct peer *peer) {
    if (peer->carrier) return peer->carrier->write(peer->owner, buffer_head(&peer->out), peer->out.used);
    ssize_t written = -1;
    do written = write(peer->fd, buffer_head(&peer->out), peer->out.used);
    while (written < 0 && errno == EINTR);
    if (written < 0 && errno != EAGAIN) peer->mute = true;
    return written < 0 ? 0 : (size_t)written;
}

static void flush(struct peer *peer) {
    for (size_t taken = 1; taken > 0 && peer->out.used && !peer->mute;) {
        taken = put(peer);
        buffer_consume(&peer->out, taken);
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

static void send_text(struct peer *peer, enum frame type, uint32_t channel, const char *text) {
    struct buffer payload = {.max = 1024};
    put_string(&payload, text);
    send_buffer(peer, type, channel, &payload);
}

void peer_refuse(struct peer *peer, uint32_t channel, const char *why) { send_text(peer, FRAME_REFUSED, channel, why); }

void peer_send_done(struct peer *peer, uint32_t channel, const struct failure *why) {
    send_text(peer, FRAME_DONE, channel, why ? why->text : "");
}

static void send_hello(struct peer *peer) {
    struct buffer payload = {.max = 1024};
    put_number(&payload, PROTOCOL_MAGIC, 4);
    put_number(&payload, PROTOCOL_VERSION, 2);
    handlers->put_greeting(&payload);
    send_buffer(peer, FRAME_HELLO, 0, &payload);
}

void peers_tell_ready(void) {
    for (int i = 0; i < PEERS_MAX; i++)
        if (peers[i]) peer_send(peers[i], FRAME_READY, 0, "", 0);
}

void peers_tell_watchers(enum frame type, const struct buffer *payload) {
    for (int i = 0; i < PEERS_MAX; i++)
        if (peers[i] && peers[i]->watch)
            peer_send(peers[i], type, peers[i]->watch, buffer_head(payload), payload->used);
}

void peers_tell_exit(const struct ending *ending) {
    for (int i = 0; i < PEERS_MAX; i++)
        if (peers[i]) peer_send_ending(peers[i], 0, ending);
}

/* --- in ------------------------------------------------------------------------------------------------------- */

static bool greet(struct peer *peer, enum frame type, struct cursor *payload) {
    uint64_t magic = take_number(payload, 4), version = take_number(payload, 2);
    peer->version = version < PROTOCOL_VERSION ? (unsigned)version : PROTOCOL_VERSION;
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
    bool good = peer->greeted ? handlers->take(peer, type, channel, &cursor) : greet(peer, type, &cursor);
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

void peer_take(struct peer *peer, const uint8_t *bytes, size_t length) {
    if (peer->dropped) return;
    if (buffer_add(&peer->in, bytes, length))
        take_frames(peer);
    else
        peer_drop(peer);
}

/* What is queued goes out at the next tick: what it tells of is written down by then. */
static void peer_ready(void *owner, int fd, short events) {
    static uint8_t bytes[FRAME_MAX];
    struct peer *peer = owner;
    if (fd != peer->fd || peer->dropped || !(events & (POLLIN | POLLHUP | POLLERR))) return;
    ssize_t got = read(fd, bytes, sizeof bytes);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got > 0)
        peer_take(peer, bytes, (size_t)got);
    else
        peer_drop(peer);
}

/* --- coming and going ----------------------------------------------------------------------------------------- */

static struct peer *add(int fd, const struct carrier *carrier, void *owner) {
    for (int i = 0; i < PEERS_MAX; i++) {
        if (peers[i]) continue;
        struct peer *peer = calloc(1, sizeof *peer);
        if (!peer) break;
        *peer = (struct peer){.fd = fd, .carrier = carrier, .owner = owner, .in = {.max = 2 * (FRAME_MAX + 4)}, .out = {.max = QUEUE_MAX}, .spec = {.max = SPEC_MAX}};
        peers[i] = peer;
        send_hello(peer);
        return peer;
    }
    return NULL;
}

void peers_add(int fd) {
    (void)fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    if (!add(fd, NULL, NULL)) close(fd);
}

struct peer *peers_add_carried(const struct carrier *carrier, void *owner) { return add(-1, carrier, owner); }

/* A guest's kernel may lead its own processes to our vsock, too. */
static bool is_of_guest(const struct sockaddr_vm *from) {
    return from->svm_family == AF_VSOCK && from->svm_cid != VMADDR_CID_HOST;
}

static void accept_ready(void *owner, int fd, short events) {
    struct sockaddr_vm from = {0};
    socklen_t size = sizeof from;
    (void)owner, (void)events;
    int accepted = accept4(fd, (struct sockaddr *)&from, &size, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (accepted < 0) return;
    if (is_of_guest(&from))
        close(accepted);
    else
        peers_add(accepted);
}

void peers_open(const struct peer_handlers *given) { handlers = given; }

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

static void forget(int index) {
    struct peer *peer = peers[index];
    handlers->lost(peer);
    if (peer->carrier) peer->carrier->leave(peer->owner);
    close_fd(&peer->fd);
    buffer_free(&peer->in);
    buffer_free(&peer->out);
    buffer_free(&peer->spec);
    free(peer);
    peers[index] = NULL;
}

void peers_tick(void) {
    for (int i = 0; i < PEERS_MAX; i++) {
        if (peers[i]) flush(peers[i]);
        if (peers[i] && peers[i]->dropped) forget(i);
    }
}

/* At once: however many connections follow one another in what a port brings, none is without room for these. */
void peer_lose_carrier(struct peer *peer) {
    peer->carrier = NULL;
    for (int i = 0; i < PEERS_MAX; i++)
        if (peers[i] == peer) forget(i);
}

void peers_flush(int64_t deadline_ms) {
    for (int i = 0; i < PEERS_MAX; i++) {
        struct peer *peer = peers[i];
        for (; peer; flush(peer)) {
            flush(peer);
            const struct carrier *by = peer->carrier;
            if (by) (void)by->write(peer->owner, NULL, 0);
            int64_t left = deadline_ms - now_ms();
            bool waits = peer->out.used || (by && by->waits(peer->owner));
            struct pollfd wait = {.fd = by ? by->fd(peer->owner) : peer->fd, .events = POLLOUT};
            if (!waits || peer->mute || left <= 0 || poll(&wait, 1, (int)left) <= 0 || wait.revents & POLLHUP) break;
        }
    }
}

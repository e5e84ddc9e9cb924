/* Connections: byte streams that carry frames. A peer that breaks the protocol or does not read is dropped; it can
 * neither crash us nor make us grow. */
#ifndef PEER_H
#define PEER_H

#include "failure.h"
#include "journal.h"
#include "protocol.h"
#include "wire.h"

enum { PEERS_MAX = 32 };

struct peer;

/* What connections leave to those above them. */
struct peer_handlers {
    bool (*take)(struct peer *peer, enum frame type, uint32_t channel, struct cursor *payload); /* false: not allowed */
    void (*put_greeting)(struct buffer *hello); /* what a hello says after magic and version */
    void (*lost)(const struct peer *peer);      /* it is gone: nothing may be sent to it any more */
};

/* What carries the bytes of a connection that has no descriptor of its own. */
struct carrier {
    size_t (*write)(void *owner, const uint8_t *bytes, size_t length); /* how many were taken; 0: it is full */
    bool (*waits)(const void *owner);                                  /* the other end has not taken all yet */
    int (*fd)(const void *owner);
    void (*leave)(void *owner); /* the connection has ended */
};

void peers_open(const struct peer_handlers *handlers); /* before the first connection */
void peers_listen(int fd); /* a listening socket: each connection is a peer */
void peers_add(int fd);    /* a stream that is there already */
struct peer *peers_add_carried(const struct carrier *carrier, void *owner); /* NULL: no room */
void peer_take(struct peer *peer, const uint8_t *bytes, size_t length); /* it said so; at most FRAME_MAX at once */
void peer_lose_carrier(struct peer *peer);                              /* another has it now */
void peers_watch(void);
void peers_tick(void); /* forget those that are gone */
void peers_tell_ready(void);
void peers_tell_exit(const struct ending *ending);
void peers_tell_watchers(enum frame type, const struct buffer *payload);
void peers_flush(int64_t deadline_ms); /* send what is queued, waiting until then at most */

void peer_send(struct peer *peer, enum frame type, uint32_t channel, const void *payload, size_t length);
void peer_send_ending(struct peer *peer, uint32_t channel, const struct ending *ending);
void peer_send_credit(struct peer *peer, uint32_t channel, uint32_t bytes);
void peer_watch(struct peer *peer, uint32_t channel); /* changes of processes go there from now on */
bool peer_speaks(const struct peer *peer, unsigned version);
void peer_send_done(struct peer *peer, uint32_t channel, const struct failure *why); /* NULL: it is done */
void peer_refuse(struct peer *peer, uint32_t channel, const char *why);
bool peer_has_room(const struct peer *peer); /* for bulk; control frames go into a reserve above */
void peer_drop(struct peer *peer);

/* For the dispatcher: the parts of a spec that arrived so far. */
struct buffer *peer_spec(struct peer *peer);

#endif

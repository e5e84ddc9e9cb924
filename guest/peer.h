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
struct port;
struct process;

void peers_listen(int fd); /* a listening socket: each connection is a peer */
void peers_add(int fd);    /* a stream that is there already */
struct peer *peers_add_port(struct port *port);                       /* a connection on a port; NULL: no room */
void peer_take(struct peer *peer, const uint8_t *bytes, size_t length); /* it said so; at most FRAME_MAX at once */
void peer_lose_port(struct peer *peer);                               /* another has it now */
void peers_watch(void);
void peers_tick(void); /* forget those that are gone */
void peers_tell_ready(void);
void peers_tell_exit(void);
void peers_tell_state(const struct process *process); /* to those who watch */
void peers_flush(int64_t deadline_ms); /* send what is queued, waiting until then at most */

void peer_send(struct peer *peer, enum frame type, uint32_t channel, const void *payload, size_t length);
void peer_send_ending(struct peer *peer, uint32_t channel, const struct ending *ending);
void peer_send_credit(struct peer *peer, uint32_t channel, uint32_t bytes);
void peer_send_state(struct peer *peer, uint32_t channel, const struct process *process);
void peer_watch(struct peer *peer, uint32_t channel); /* changes of processes go there from now on */
bool peer_speaks(const struct peer *peer, unsigned version);
void peer_send_done(struct peer *peer, uint32_t channel, const struct failure *why); /* NULL: it is done */
void peer_refuse(struct peer *peer, uint32_t channel, const char *why);
bool peer_has_room(const struct peer *peer); /* for bulk; control frames go into a reserve above */
void peer_drop(struct peer *peer);

/* For the dispatcher: the parts of a spec that arrived so far. */
struct buffer *peer_spec(struct peer *peer);

#endif

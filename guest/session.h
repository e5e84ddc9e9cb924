/* Commands that run beside the workload: each belongs to one channel of one peer and is bounded by credit.
 *
 * Out: we read from the command only what the peer has given credit for. In: we give credit for what fits our buffer,
 * so neither side can be made to hold more, and no session waits for another. */
#ifndef SESSION_H
#define SESSION_H

#include <sys/types.h>

#include "spec.h"

struct peer;
struct session;

enum { SESSIONS_MAX = 64, OUT_WINDOW = 256 << 10 };

struct session *session_find(const struct peer *peer, uint32_t channel);
/* `spec`: the machine's, which the command is merged with. False: malformed. */
bool session_open(struct peer *peer, uint32_t channel, struct cursor *request, const struct spec *spec);
bool session_input(struct session *session, const uint8_t *bytes, size_t length); /* false: more than the credit */
void session_input_end(struct session *session);
void session_resize(struct session *session, uint16_t rows, uint16_t cols);
void session_signal(struct session *session, int signal);
bool session_credit(struct session *session, uint32_t bytes); /* false: beyond any window */
void session_hang_up(struct session *session);

void sessions_lost(const struct peer *peer);
bool sessions_reaped(pid_t pid, int status);
void sessions_kill(unsigned mark); /* of a container: also those that have not taken its mark yet */
void sessions_watch(void);
void sessions_tick(void);
void sessions_finish(void); /* all are dead: say so */

#endif

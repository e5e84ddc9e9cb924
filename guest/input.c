#include "input.h"

#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "loop.h"
#include "peer.h"
#include "spawn.h"

enum { TYPED_AT_END = 2 };

void input_begin(struct input *input, int *fd, struct peer *peer, uint32_t channel) {
    *input = (struct input){.bytes = {.max = IN_WINDOW + TYPED_AT_END}, .fd = fd, .peer = peer, .channel = channel};
}

static void give_credit(struct input *input, size_t taken) {
    size_t bytes = taken < input->owed ? taken : input->owed;
    input->owed -= bytes;
    if (bytes) peer_send_credit(input->peer, input->channel, (uint32_t)bytes);
}

/* A terminal stays open: a command that closes its ends before it exits, as cat does, would be hung up on. */
static void close_when_done(struct input *input) {
    if (input->bytes.used == 0 && input->ended && !input->terminal) close_fd(input->fd);
}

static void ready(void *owner, int fd, short events) {
    struct input *input = owner;
    if (fd != *input->fd) return;
    bool deaf = events & (POLLERR | POLLHUP); /* it no longer reads: what comes is dropped, and credit goes on */
    ssize_t taken = deaf ? (ssize_t)input->bytes.used : write(fd, buffer_head(&input->bytes), input->bytes.used);
    if (taken > 0) {
        buffer_consume(&input->bytes, (size_t)taken);
        give_credit(input, (size_t)taken);
    }
    if (deaf) close_fd(input->fd);
    close_when_done(input);
}

bool input_add(struct input *input, const uint8_t *bytes, size_t length) {
    if (*input->fd < 0 || input->ended) {
        if (length) peer_send_credit(input->peer, input->channel, (uint32_t)length);
        return true;
    }
    if (length > IN_WINDOW - input->owed) return false;
    if (length) input->mid_line = bytes[length - 1] != '\n';
    input->owed += length;
    return buffer_add(&input->bytes, bytes, length);
}

/* A terminal cannot be half closed: Ctrl-D says there that nothing more comes, and a first one sends an open line. */
void input_end(struct input *input, bool terminal) {
    static const uint8_t end_of_file[TYPED_AT_END] = {4, 4};
    if (input->ended || *input->fd < 0) return;
    input->terminal = terminal;
    if (terminal) (void)buffer_add(&input->bytes, end_of_file, input->mid_line ? 2 : 1);
    input->ended = true;
    close_when_done(input);
}

void input_watch(struct input *input) {
    if (input->bytes.used) loop_watch(*input->fd, POLLOUT, ready, input);
}

void input_free(struct input *input) { buffer_free(&input->bytes); }

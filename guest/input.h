/* What a peer types, on its way to a process: bounded by the credit that the peer was given, which it gets back as the
 * process reads. */
#ifndef INPUT_H
#define INPUT_H

#include <stdbool.h>

#include "wire.h"

struct peer;

enum { IN_WINDOW = 64 << 10 };

struct input {
    struct buffer bytes;
    size_t owed;   /* credit that the peer gets for what is held; not for what we typed ourselves */
    bool mid_line; /* the last byte was not the end of a line */
    bool ended;
    bool terminal; /* known once it has ended */
    int *fd; /* the process's stdin, or its terminal */
    struct peer *peer;
    uint32_t channel;
};

void input_begin(struct input *input, int *fd, struct peer *peer, uint32_t channel);
bool input_add(struct input *input, const uint8_t *bytes, size_t length); /* false: more than the credit */
void input_end(struct input *input, bool terminal);
void input_watch(struct input *input);
void input_free(struct input *input);

#endif

#include "escape.h"

#include <stdbool.h>
#include <string.h>

enum { ITSELF = 0, BEGIN = 1, END = 2 };

static enum meaning after_escape(struct unescaper *unescaper, uint8_t *byte) {
    unescaper->state = PLAIN;
    switch (*byte) {
    case ITSELF:
        *byte = ESCAPE;
        return MEANS_BYTE;
    case BEGIN:
        unescaper->state = COUNTING;
        unescaper->count = 0;
        return MEANS_NOTHING;
    default:
        return MEANS_END;
    }
}

static enum meaning in_nonce(struct unescaper *unescaper, uint8_t byte) {
    if (byte >= 0x80) {
        unescaper->state = PLAIN;
        return MEANS_END;
    }
    unescaper->nonce[unescaper->count++] = byte;
    if (unescaper->count < NONCE) return MEANS_NOTHING;
    unescaper->state = PLAIN;
    return MEANS_BEGIN;
}

/* An escape within an escape begins one: whoever sent the first half was cut off, and another goes on. */
enum meaning unescape(struct unescaper *unescaper, uint8_t *byte) {
    bool cut_off = unescaper->state != PLAIN;
    if (*byte == ESCAPE) {
        unescaper->state = ESCAPED;
        return cut_off ? MEANS_END : MEANS_NOTHING;
    }
    if (unescaper->state == ESCAPED) return after_escape(unescaper, byte);
    return unescaper->state == COUNTING ? in_nonce(unescaper, *byte) : MEANS_BYTE;
}

size_t escape(uint8_t *to, size_t room, const uint8_t *from, size_t *length) {
    size_t taken = 0, made = 0;
    for (; taken < *length && made + 2 <= room; taken++) {
        to[made++] = from[taken];
        if (from[taken] == ESCAPE) to[made++] = ITSELF;
    }
    *length = made;
    return taken;
}

void escape_opening(uint8_t to[OPENING], const uint8_t nonce[NONCE]) {
    to[0] = ESCAPE;
    to[1] = BEGIN;
    memcpy(to + 2, nonce, NONCE);
}

void escape_ending(uint8_t to[ENDING]) {
    to[0] = ESCAPE;
    to[1] = END;
}

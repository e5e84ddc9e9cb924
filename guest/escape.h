/* The framing of a serial port, which has no connections: bytes, and escapes that begin and end one. PROTOCOL.md has
 * the layout. Pure. */
#ifndef ESCAPE_H
#define ESCAPE_H

#include <stddef.h>
#include <stdint.h>

enum { ESCAPE = 0xfe, NONCE = 8, OPENING = 2 + NONCE, ENDING = 2 };

enum meaning { MEANS_NOTHING, MEANS_BYTE, MEANS_BEGIN, MEANS_END };

struct unescaper {
    enum { PLAIN, ESCAPED, COUNTING } state;
    uint8_t nonce[NONCE];
    size_t count;
};

/* What one more byte means; `*byte` is then the byte that was meant. */
enum meaning unescape(struct unescaper *unescaper, uint8_t *byte);

/* Escapes what fits into `room` bytes; how many of the `*length` were taken, and `*length` is then how many came out. */
size_t escape(uint8_t *to, size_t room, const uint8_t *from, size_t *length);

void escape_opening(uint8_t to[OPENING], const uint8_t nonce[NONCE]);
void escape_ending(uint8_t to[ENDING]);

#endif

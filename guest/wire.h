/* Bytes in and out: a bounds-checked cursor over received bytes, a bounded queue for bytes to send, CRC-32.
 *
 * Everything is little-endian. A string on the wire is u32 length, bytes, NUL; a list is u32 count, strings. A cursor
 * that runs past its end fails for good and yields zeros, so a parser checks `failed` once, at its end. */
#ifndef WIRE_H
#define WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cursor {
    const uint8_t *at;
    const uint8_t *end;
    bool failed;
};

uint64_t take_number(struct cursor *cursor, size_t width);
const uint8_t *take_bytes(struct cursor *cursor, size_t *length);
const char *take_string(struct cursor *cursor); /* points into the received bytes */
char **take_list(struct cursor *cursor, size_t max, size_t *count); /* NULL-terminated; the caller frees the array */

struct buffer {
    uint8_t *data;
    size_t start; /* first byte not yet consumed */
    size_t used;  /* bytes after start */
    size_t size;
    size_t max;
};

bool buffer_add(struct buffer *buffer, const void *bytes, size_t length);
void buffer_consume(struct buffer *buffer, size_t length);
void buffer_free(struct buffer *buffer);
static inline const uint8_t *buffer_head(const struct buffer *buffer) { return buffer->data + buffer->start; }

bool put_number(struct buffer *buffer, uint64_t value, size_t width);
bool put_string(struct buffer *buffer, const char *string);

void store_number(uint8_t *to, uint64_t value, size_t width);
uint32_t crc32_of(uint32_t crc, const void *bytes, size_t length);

#endif

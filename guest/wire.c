#include "wire.h"

#include <stdlib.h>
#include <string.h>

static size_t left(const struct cursor *cursor) { return (size_t)(cursor->end - cursor->at); }

static const uint8_t *advance(struct cursor *cursor, size_t length) {
    if (cursor->failed || left(cursor) < length) {
        cursor->failed = true;
        return NULL;
    }
    const uint8_t *at = cursor->at;
    cursor->at += length;
    return at;
}

uint64_t take_number(struct cursor *cursor, size_t width) {
    const uint8_t *at = advance(cursor, width);
    uint64_t value = 0;
    for (size_t i = 0; at && i < width; i++) value |= (uint64_t)at[i] << (8 * i);
    return value;
}

const uint8_t *take_bytes(struct cursor *cursor, size_t *length) {
    *length = (size_t)take_number(cursor, 4);
    const uint8_t *at = advance(cursor, *length);
    if (!at) *length = 0;
    return at;
}

const char *take_string(struct cursor *cursor) {
    size_t length;
    const uint8_t *bytes = take_bytes(cursor, &length);
    const uint8_t *end = advance(cursor, 1);
    if (!bytes || !end || *end != 0 || memchr(bytes, 0, length)) {
        cursor->failed = true;
        return "";
    }
    return (const char *)bytes;
}

char **take_list(struct cursor *cursor, size_t max, size_t *count) {
    *count = (size_t)take_number(cursor, 4);
    /* A string takes five bytes at least, so a count that lies cannot make us allocate more than was received. */
    if (cursor->failed || *count > max || *count > left(cursor) / 5) {
        cursor->failed = true;
        return NULL;
    }
    char **list = calloc(*count + 1, sizeof *list);
    if (!list) cursor->failed = true;
    for (size_t i = 0; list && i < *count; i++) list[i] = (char *)(uintptr_t)take_string(cursor);
    return list;
}

static bool make_room(struct buffer *buffer, size_t length) {
    if (length > buffer->max || buffer->used > buffer->max - length) return false;
    if (buffer->start + buffer->used + length <= buffer->size) return true;
    if (buffer->start > 0) {
        memmove(buffer->data, buffer_head(buffer), buffer->used);
        buffer->start = 0;
    }
    size_t size = buffer->size ? buffer->size : 256;
    while (size < buffer->used + length) size *= 2;
    if (size == buffer->size) return true;
    uint8_t *data = realloc(buffer->data, size);
    if (!data) return false;
    buffer->data = data;
    buffer->size = size;
    return true;
}

bool buffer_add(struct buffer *buffer, const void *bytes, size_t length) {
    if (length == 0) return true;
    if (!make_room(buffer, length)) return false;
    memcpy(buffer->data + buffer->start + buffer->used, bytes, length);
    buffer->used += length;
    return true;
}

void buffer_consume(struct buffer *buffer, size_t length) {
    buffer->start += length;
    buffer->used -= length;
    if (buffer->used == 0) buffer->start = 0;
}

void buffer_free(struct buffer *buffer) {
    free(buffer->data);
    buffer->data = NULL;
    buffer->start = buffer->used = buffer->size = 0;
}

void store_number(uint8_t *to, uint64_t value, size_t width) {
    for (size_t i = 0; i < width; i++) to[i] = (uint8_t)(value >> (8 * i));
}

bool put_number(struct buffer *buffer, uint64_t value, size_t width) {
    uint8_t bytes[8];
    store_number(bytes, value, width);
    return buffer_add(buffer, bytes, width);
}

bool put_string(struct buffer *buffer, const char *string) {
    size_t length = strlen(string);
    return put_number(buffer, length, 4) && buffer_add(buffer, string, length + 1);
}

/* CRC-32 as zlib has it; four bits at a time needs a table of 16 only. */
uint32_t crc32_of(uint32_t crc, const void *bytes, size_t length) {
    static const uint32_t nibble[16] = {
        0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4, 0x4db26158, 0x5005713c,
        0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c, 0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c,
    };
    const uint8_t *at = bytes;
    crc = ~crc;
    for (size_t i = 0; i < length; i++) {
        crc = (crc >> 4) ^ nibble[(crc ^ at[i]) & 15];
        crc = (crc >> 4) ^ nibble[(crc ^ (uint32_t)(at[i] >> 4)) & 15];
    }
    return ~crc;
}

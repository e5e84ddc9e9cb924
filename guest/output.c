#include "output.h"

#include <sys/uio.h>

#include "loop.h"
#include "wire.h"

enum { HEADER = 28, DEFAULT_LIMIT = 4 << 20, LEAST_LIMIT = 4 * OUTPUT_CHUNK };

static struct place segments[2] = {{.fd = -1}, {.fd = -1}};
static int current;
static size_t limit = DEFAULT_LIMIT;
static uint64_t position;

void output_open(const struct place places[2]) {
    for (int i = 0; i < 2; i++) segments[i] = places[i];
}

void output_set_limit(uint32_t bytes) {
    if (bytes) limit = bytes < LEAST_LIMIT ? LEAST_LIMIT : bytes;
    if (segments[0].window && limit > segments[0].size) limit = segments[0].size;
}

uint64_t output_position(void) { return position; }

void output_write(void) { place_write(&segments[current]); }

/* The one that was full gives its window to the next. */
static void make_room(size_t length) {
    if (segments[current].end + length <= limit) return;
    output_write();
    current = !current;
    place_empty(&segments[current]);
}

/* crc u32 over what follows it, length u32, position u64, unix ns u64, stream u8, process u8, zero u16, bytes. */
void output_add(uint8_t stream, uint8_t process, const void *bytes, size_t length) {
    if (segments[0].fd < 0 || segments[1].fd < 0) return;
    uint8_t header[HEADER] = {0};
    make_room(HEADER + length);
    store_number(header + 4, length, 4);
    store_number(header + 8, position, 8);
    store_number(header + 16, unix_ns(), 8);
    header[24] = stream;
    header[25] = process;
    store_number(header, crc32_of(crc32_of(0, header + 4, HEADER - 4), bytes, length), 4);
    struct iovec parts[2] = {{header, HEADER}, {(void *)(uintptr_t)bytes, length}};
    if (place_add(&segments[current], parts, 2)) position++;
}

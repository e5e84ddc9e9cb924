#include "output.h"

#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "loop.h"
#include "wire.h"

enum { HEADER = 28, DEFAULT_LIMIT = 4 << 20, LEAST_LIMIT = 4 * OUTPUT_CHUNK };

static int segments[2] = {-1, -1};
static int current;
static size_t filled;
static size_t limit = DEFAULT_LIMIT;
static uint64_t position;

void output_open(int first, int second) {
    segments[0] = first;
    segments[1] = second;
}

void output_set_limit(uint32_t bytes) {
    if (bytes) limit = bytes < LEAST_LIMIT ? LEAST_LIMIT : bytes;
}

static void make_room(size_t length) {
    if (filled + length <= limit) return;
    current = !current;
    filled = 0;
    (void)!ftruncate(segments[current], 0);
}

/* crc u32 over what follows it, length u32, position u64, unix ns u64, stream u8, process u8, zero u16, bytes. */
void output_add(uint8_t stream, uint8_t process, const void *bytes, size_t length) {
    if (segments[0] < 0 || segments[1] < 0) return;
    uint8_t header[HEADER] = {0};
    make_room(HEADER + length);
    store_number(header + 4, length, 4);
    store_number(header + 8, position, 8);
    store_number(header + 16, unix_ns(), 8);
    header[24] = stream;
    header[25] = process;
    store_number(header, crc32_of(crc32_of(0, header + 4, HEADER - 4), bytes, length), 4);
    struct iovec parts[2] = {{header, HEADER}, {(void *)(uintptr_t)bytes, length}};
    ssize_t written = writev(segments[current], parts, 2);
    if (written == (ssize_t)(HEADER + length)) {
        filled += (size_t)written;
        position++;
    } else if (written > 0) {
        (void)!ftruncate(segments[current], (off_t)filled); /* a torn record would hide those after it */
    }
}

#include "journal.h"

#include <fcntl.h>
#include <unistd.h>

#include "loop.h"

enum { RESERVED = 16384, PAYLOAD_MAX = 1024 };
enum record { STARTED = 1, ACCEPTED = 2, READY = 3, PROCESS_EXIT = 4, FINAL_EXIT = 5 };

static int journal = -1;

void journal_open(int fd) {
    journal = fd;
    if (fd >= 0) (void)fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, RESERVED);
}

/* crc u32 over what follows it, length u16, type u8, zero u8, payload. One write, so a reader sees all or a torn tail. */
static void append(enum record type, struct buffer *payload, bool sync) {
    uint8_t record[8 + PAYLOAD_MAX];
    size_t length = payload->used < PAYLOAD_MAX ? payload->used : PAYLOAD_MAX;
    store_number(record + 4, length, 2);
    record[6] = (uint8_t)type;
    record[7] = 0;
    for (size_t i = 0; i < length; i++) record[8 + i] = buffer_head(payload)[i];
    store_number(record, crc32_of(0, record + 4, length + 4), 4);
    buffer_free(payload);
    if (journal < 0) return;
    if (write(journal, record, 8 + length) < 0) return; /* nowhere left to say so */
    if (sync) (void)fdatasync(journal);
}

static struct buffer stamped(uint64_t at_ns) {
    struct buffer payload = {.max = PAYLOAD_MAX};
    put_number(&payload, at_ns, 8);
    return payload;
}

void journal_started(void) {
    struct buffer payload = stamped(unix_ns());
    put_number(&payload, (uint64_t)getpid(), 4);
    append(STARTED, &payload, false);
}

void journal_accepted(const char *instance) {
    struct buffer payload = stamped(unix_ns());
    put_string(&payload, instance);
    append(ACCEPTED, &payload, false);
}

void journal_ready(void) {
    struct buffer payload = stamped(unix_ns());
    append(READY, &payload, false);
}

bool put_ending(struct buffer *buffer, const struct ending *ending) {
    return put_number(buffer, ending->at_ns, 8) && put_number(buffer, ending->code, 4) &&
           put_number(buffer, ending->signal, 4) && put_number(buffer, ending->process, 1) &&
           put_string(buffer, ending->reason);
}

static void append_ending(enum record type, const struct ending *ending, bool sync) {
    struct buffer payload = {.max = PAYLOAD_MAX};
    put_ending(&payload, ending);
    append(type, &payload, sync);
}

/* The first process's end and the final exit are the same fact when there is one process: the last record syncs both,
 * and until then the earlier one is in the page cache, which our own death does not lose. */
void journal_process_exit(const struct ending *ending) { append_ending(PROCESS_EXIT, ending, false); }

void journal_final_exit(const struct ending *ending) { append_ending(FINAL_EXIT, ending, true); }

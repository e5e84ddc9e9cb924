#include "journal.h"

#include <unistd.h>

#include "loop.h"

/* With many runs it stays below LONG, a rewrite of all processes and the last records: the reader takes 64 KiB. */
enum { RESERVED = 16384, LONG = 32768, PAYLOAD_MAX = 1024, REWRITE_MAX = 65536 };
enum record {
    STARTED = 1,
    ACCEPTED = 2,
    READY = 3,
    PROCESS_EXIT = 4,
    FINAL_EXIT = 5,
    RUN_BEGAN = 6,
    RUN_ENDED = 7,
    STAGES = 8,
};

static struct place journal = {.fd = -1}; /* nobody else writes here */
static size_t runs_begin;                 /* what comes before is never written again */
static struct buffer anew = {.max = REWRITE_MAX};
static bool rewriting;

void journal_open(const struct place *place) {
    journal = *place;
    runs_begin = journal.end;
    place_reserve(&journal, RESERVED);
}

static bool write_at_end(const void *bytes, size_t length) {
    struct iovec part = {(void *)(uintptr_t)bytes, length};
    return place_add(&journal, &part, 1);
}

/* crc u32 over what follows it, length u16, type u8, zero u8, payload. */
static void append(enum record type, struct buffer *payload, bool sync) {
    uint8_t record[8 + PAYLOAD_MAX];
    size_t length = payload->used < PAYLOAD_MAX ? payload->used : PAYLOAD_MAX;
    store_number(record + 4, length, 2);
    record[6] = (uint8_t)type;
    record[7] = 0;
    for (size_t i = 0; i < length; i++) record[8 + i] = buffer_head(payload)[i];
    store_number(record, crc32_of(0, record + 4, length + 4), 4);
    buffer_free(payload);
    if (rewriting)
        (void)buffer_add(&anew, record, 8 + length);
    else if (write_at_end(record, 8 + length))
        place_write(&journal);
    if (sync) place_sync(&journal);
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

void journal_stages(const uint64_t *stages, size_t count) {
    struct buffer payload = {.max = PAYLOAD_MAX};
    for (size_t i = 0; i < count; i++) put_number(&payload, stages[i], 8);
    append(STAGES, &payload, false);
}

void journal_ready(void) {
    struct buffer payload = stamped(unix_ns());
    append(READY, &payload, false);
    runs_begin = journal.end;
}

bool put_ending(struct buffer *buffer, const struct ending *ending) {
    return put_number(buffer, ending->at_ns, 8) && put_number(buffer, ending->code, 4) &&
           put_number(buffer, ending->signal, 4) && put_number(buffer, ending->process, 1) &&
           put_string(buffer, ending->reason) && put_number(buffer, ending->oom, 1);
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

/* --- runs ----------------------------------------------------------------------------------------------------- */

void journal_expect_runs(void) {
    place_reserve(&journal, LONG + RESERVED);
}

void journal_run_began(const struct run *run) {
    struct buffer payload = stamped(run->started_ns);
    put_number(&payload, run->process, 1);
    put_number(&payload, run->number, 4);
    put_number(&payload, run->pid, 4);
    append(RUN_BEGAN, &payload, false);
}

void journal_run_ended(const struct run *run) {
    struct buffer payload = {.max = PAYLOAD_MAX};
    put_number(&payload, run->state == ENDED ? run->number : run->number - 1, 4);
    put_ending(&payload, &run->ending);
    append(RUN_ENDED, &payload, false);
}

bool journal_is_long(void) { return journal.end > LONG; }

void journal_begin_anew(void) { rewriting = true; }

/* Over the old ones first, and then cut: whatever ends us between the two leaves a tail that matches no record. */
void journal_end_anew(void) {
    rewriting = false;
    size_t before = journal.end;
    place_return(&journal, runs_begin);
    if (write_at_end(buffer_head(&anew), anew.used)) {
        place_cut(&journal);
        journal_expect_runs();
    } else
        place_return(&journal, before);
    buffer_free(&anew);
}

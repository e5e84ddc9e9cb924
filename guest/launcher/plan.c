#include "plan.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "report.h"

enum { HEAD = 16, RECORD_HEAD = 8 };

/* Of each kind its fields: n a number, s a text, b bytes. */
static const char *const shapes[KINDS] = {
    [GROUP] = "sn",       [GROUP_SET] = "ssn",        [GROUP_FILTER] = "b", [NETNS] = "s",       [USERNS] = "ss",
    [OOM_SCORE] = "s",    [NAMESPACES] = "n",         [RUN_ON_HOST] = "",    [ROOT] = "snn",      [HOSTNAME] = "s",
    [FILESYSTEM] = "ssssnn", [BIND] = "ssnnnn",       [NODE] = "snnn",      [LINK] = "ssn",      [MASK] = "s",
    [READ_ONLY] = "s",    [RLIMIT] = "nnn",           [CAPABILITIES] = "nnnnn", [NO_NEW_PRIVILEGES] = "",
    [SECCOMP] = "nb",     [ARG] = "s",                [ENV] = "s",           [APPARMOR] = "s",
};

static uint32_t number32(const char *at) {
    const unsigned char *bytes = (const unsigned char *)at;
    return bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

static _Noreturn void refuse(const char *why) {
    fail_with(EINVAL, "read the plan:", why);
}

/* How many bytes the field takes; what is there is checked to be all there. */
static size_t read_field(char shape, const char *at, size_t left, struct field *field) {
    if (shape == 'n') {
        if (left < 8) refuse("a number is cut");
        *field = (struct field){.number = number32(at) | (uint64_t)number32(at + 4) << 32};
        return 8;
    }
    if (left < 4) refuse("a length is cut");
    size_t length = number32(at);
    if (length >= left - 4) refuse("a text is cut");
    *field = (struct field){.bytes = at + 4, .length = length};
    if (at[4 + length] != 0) refuse("a text has no end");
    if (shape == 's' && memchr(at + 4, 0, length)) refuse("a text ends twice");
    return length + 5;
}

int plan_next(struct plan *plan, struct record *record) {
    if (plan->at == plan->length) return 0;
    if (plan->length - plan->at < RECORD_HEAD) refuse("a record is cut");
    const char *at = plan->bytes + plan->at;
    uint32_t kind = number32(at);
    size_t left = number32(at + 4);
    if (kind == 0 || kind >= KINDS) refuse("a record of an unknown kind");
    if (left > plan->length - plan->at - RECORD_HEAD) refuse("a record is cut");
    plan->at += RECORD_HEAD + left;
    record->kind = (enum record_kind)kind;
    at += RECORD_HEAD;
    for (size_t i = 0; shapes[kind][i]; i++) {
        size_t taken = read_field(shapes[kind][i], at, left, &record->fields[i]);
        at += taken;
        left -= taken;
    }
    if (left != 0) refuse("a record is too long");
    return 1;
}

int plan_find(const struct plan *plan, enum record_kind kind, struct record *record) {
    struct plan copy = {.bytes = plan->bytes, .length = plan->length, .at = HEAD};
    while (plan_next(&copy, record))
        if (record->kind == kind) return 1;
    return 0;
}

void plan_read(struct plan *plan, const char *path) {
    struct stat about;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 || fstat(fd, &about) < 0) fail("open the plan", path);
    if (!S_ISREG(about.st_mode) || about.st_size < HEAD || about.st_size > PLAN_BYTES_MAX) refuse("it has no such size");
    size_t length = (size_t)about.st_size;
    char *bytes = mmap(NULL, length, PROT_READ, MAP_PRIVATE, fd, 0);
    if (bytes == MAP_FAILED) fail("read the plan", path);
    close(fd);
    if (memcmp(bytes, "hawkplan", 8) != 0) refuse("it is none");
    if (number32(bytes + 8) != PLAN_VERSION) refuse("it is of another version");
    if (number32(bytes + 12) != length) refuse("it is cut");
    *plan = (struct plan){.bytes = bytes, .length = length, .at = HEAD};
    struct record record;
    while (plan_next(plan, &record)) continue;
    plan->at = HEAD;
}

#include "process_list.h"

#include <fcntl.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "container_mark.h"
#include "descent.h"
#include "loop.h"
#include "machine.h"
#include "peer.h"
#include "sockets.h"

enum { LISTED_MAX = 512, TEXT_MAX = 256, GENERATIONS_MAX = 64 };

static size_t read_text(pid_t pid, const char *name, char *text) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? 0 : read(fd, text, TEXT_MAX - 1);
    if (fd >= 0) close(fd);
    text[got > 0 ? got : 0] = 0;
    return got > 0 ? (size_t)got : 0;
}

/* The arguments joined by blanks, or the name in brackets for what has none. */
static void read_command(pid_t pid, const struct ancestry *about, char *text) {
    size_t length = read_text(pid, "cmdline", text);
    while (length > 0 && text[length - 1] == 0) length--;
    for (size_t i = 0; i < length; i++)
        if (text[i] == 0) text[i] = ' ';
    if (length == 0) snprintf(text, TEXT_MAX, "[%s]", about->name);
}

static void read_link(pid_t pid, const char *name, char *text) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
    ssize_t got = readlink(path, text, TEXT_MAX - 1);
    text[got > 0 ? got : 0] = 0;
}

/* When the host booted, in Unix time: start times are counted from there. */
static uint64_t boot_ns(void) {
    struct timespec since;
    clock_gettime(CLOCK_BOOTTIME, &since);
    return unix_ns() - (uint64_t)since.tv_sec * 1000000000u - (uint64_t)since.tv_nsec;
}

static const char *process_name(pid_t pid) {
    const struct process *process;
    for (size_t i = 0; (process = machine_process(i)); i++)
        if (process_goes_on(process) && process->child.pid == pid) return process->command->name;
    return NULL;
}

/* By its mark, else by the process that it descends from. */
static const char *container_of(const struct ancestry *all, size_t count, const struct ancestry *about) {
    unsigned mark = mark_of(about->pid);
    const struct process *marked = mark ? machine_process(mark - 1) : NULL;
    if (marked) return marked->command->name;
    for (int generation = 0; generation < GENERATIONS_MAX; generation++) {
        const char *name = process_name(about->pid);
        if (name) return name;
        size_t parent = 0;
        while (parent < count && all[parent].pid != about->parent) parent++;
        if (parent == count) break;
        about = &all[parent];
    }
    return "";
}

static void send_process(struct peer *peer, uint32_t channel, const struct ancestry *about, const char *container) {
    struct buffer payload = {.max = 8192};
    char command[TEXT_MAX], directory[TEXT_MAX];
    uint64_t ticks = (uint64_t)sysconf(_SC_CLK_TCK);
    read_command(about->pid, about, command);
    read_link(about->pid, "cwd", directory);
    put_number(&payload, (uint64_t)about->pid, 4);
    put_number(&payload, boot_ns() + about->start_ticks * (1000000000u / ticks), 8);
    put_number(&payload, (about->user_ticks + about->system_ticks) * 1000 / ticks, 8);
    put_number(&payload, about->resident_pages * (uint64_t)sysconf(_SC_PAGESIZE), 8);
    put_string(&payload, command);
    put_string(&payload, directory);
    sockets_put(&payload, about->pid);
    put_string(&payload, container);
    peer_send(peer, FRAME_PROCESS, channel, buffer_head(&payload), payload.used);
    buffer_free(&payload);
}

void list_processes(struct peer *peer, uint32_t channel) {
    static struct ancestry found[LISTED_MAX];
    size_t count = descendants(found, LISTED_MAX);
    sockets_read();
    for (size_t i = 0; i < count; i++) send_process(peer, channel, &found[i], container_of(found, count, &found[i]));
    peer_send(peer, FRAME_LIST_END, channel, "", 0);
}

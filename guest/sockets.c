#include "sockets.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SOCKETS_MAX = 256, PER_PROCESS_MAX = 16, ASKED_MAX = 64, ANSWER_MS = 500, LISTENING = 0x0A };

static struct {
    unsigned long inode;
    char where[80];
} sockets[SOCKETS_MAX];
static size_t count;
static size_t asked_owners; /* of this list: each takes a fork */

/* The kernel prints an address as words of 32 bits in the host's order. */
static void describe(char *text, size_t size, const char *hex, unsigned port) {
    unsigned char address[16];
    char shown[INET6_ADDRSTRLEN];
    size_t words = strlen(hex) / 8;
    for (size_t i = 0; i < words && i < 4; i++) {
        char word[9];
        snprintf(word, sizeof word, "%.8s", hex + 8 * i);
        uint32_t value = (uint32_t)strtoul(word, NULL, 16);
        memcpy(address + 4 * i, &value, sizeof value);
    }
    if (!inet_ntop(words == 4 ? AF_INET6 : AF_INET, address, shown, sizeof shown)) shown[0] = 0;
    snprintf(text, size, words == 4 ? "tcp6 [%s]:%u" : "tcp %s:%u", shown, port);
}

static void read_table(const char *path) {
    FILE *table = fopen(path, "re");
    char line[256], address[33];
    unsigned port, state;
    unsigned long inode;
    while (table && count < SOCKETS_MAX && fgets(line, sizeof line, table)) {
        if (sscanf(line, " %*u: %32[0-9A-F]:%x %*[0-9A-F]:%*x %x %*x:%*x %*x:%*x %*x %*u %*d %lu", address, &port, &state,
                   &inode) != 4 ||
            state != LISTENING)
            continue;
        sockets[count].inode = inode;
        describe(sockets[count++].where, sizeof sockets[0].where, address, port);
    }
    if (table) fclose(table);
}

void sockets_read(void) {
    count = asked_owners = 0;
    read_table("/proc/net/tcp");
    read_table("/proc/net/tcp6");
}

static const char *find(const char *link) {
    unsigned long inode;
    if (sscanf(link, "socket:[%lu]", &inode) != 1) return NULL;
    for (size_t i = 0; i < count; i++)
        if (sockets[i].inode == inode) return sockets[i].where;
    return NULL;
}

/* -1: its descriptors are not ours to see. */
static ssize_t collect(pid_t pid, const char *held[PER_PROCESS_MAX]) {
    char path[64], link[64];
    ssize_t found = 0;
    bool denied = false;
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *fds = opendir(path);
    if (!fds) return -1;
    for (struct dirent *entry; found < PER_PROCESS_MAX && (entry = readdir(fds));) {
        ssize_t length = readlinkat(dirfd(fds), entry->d_name, link, sizeof link - 1);
        if (length < 0) denied |= errno == EACCES; /* root sees that they are there, and not what they are */
        if (length <= 0) continue;
        link[length] = 0;
        const char *where = find(link);
        if (where) held[found++] = where;
    }
    closedir(fds);
    return found == 0 && denied ? -1 : found;
}

_Noreturn static void collect_as_owner(pid_t pid, const struct stat *about, int answer) {
    const char *held[PER_PROCESS_MAX];
    ssize_t found = -1;
    if (setgroups(0, NULL) == 0 && setresgid(about->st_gid, about->st_gid, about->st_gid) == 0 &&
        setresuid(about->st_uid, about->st_uid, about->st_uid) == 0)
        found = collect(pid, held);
    if (found > 0) (void)!write(answer, held, (size_t)found * sizeof *held); /* the child's addresses are ours */
    _exit(0);
}

/* Only its own user may see a process's descriptors, or who has capabilities that no machine has. That user may stop
 * the child, too: it has only so long to answer, and after one that does not nobody else is asked for this list. */
static ssize_t ask_owner(pid_t pid, const char *held[PER_PROCESS_MAX]) {
    char path[64];
    struct stat about;
    int ends[2];
    snprintf(path, sizeof path, "/proc/%d", (int)pid);
    if (asked_owners == ASKED_MAX || stat(path, &about) < 0 || about.st_uid == getuid()) return 0;
    if (pipe2(ends, O_CLOEXEC) < 0) return 0;
    asked_owners++;
    pid_t child = fork();
    if (child == 0) collect_as_owner(pid, &about, ends[1]);
    close(ends[1]);
    struct pollfd wait = {.fd = ends[0], .events = POLLIN};
    ssize_t got = 0;
    if (child > 0 && poll(&wait, 1, ANSWER_MS) > 0)
        got = read(ends[0], held, PER_PROCESS_MAX * sizeof *held); /* it was written in one piece */
    else
        asked_owners = ASKED_MAX;
    close(ends[0]);
    if (child > 0 && kill(child, SIGKILL) == 0) (void)waitpid(child, NULL, 0);
    return got > 0 ? got / (ssize_t)sizeof *held : 0;
}

void sockets_put(struct buffer *payload, pid_t pid) {
    const char *held[PER_PROCESS_MAX];
    ssize_t found = count ? collect(pid, held) : 0;
    if (found < 0) found = ask_owner(pid, held);
    put_number(payload, (uint64_t)found, 4);
    for (ssize_t i = 0; i < found; i++) put_string(payload, held[i]);
}

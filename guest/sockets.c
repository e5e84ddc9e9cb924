#include "sockets.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SOCKETS_MAX = 256, PER_PROCESS_MAX = 16, LISTENING = 0x0A };

static struct {
    unsigned long inode;
    char where[80];
} sockets[SOCKETS_MAX];
static size_t count;

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
    count = 0;
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

static size_t collect(pid_t pid, const char *held[PER_PROCESS_MAX]) {
    char path[64], link[64];
    size_t found = 0;
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *fds = count ? opendir(path) : NULL;
    if (!fds) return 0;
    for (struct dirent *entry; found < PER_PROCESS_MAX && (entry = readdir(fds));) {
        ssize_t length = readlinkat(dirfd(fds), entry->d_name, link, sizeof link - 1);
        if (length <= 0) continue;
        link[length] = 0;
        const char *where = find(link);
        if (where) held[found++] = where;
    }
    closedir(fds);
    return found;
}

void sockets_put(struct buffer *payload, pid_t pid) {
    const char *held[PER_PROCESS_MAX];
    size_t found = collect(pid, held);
    put_number(payload, found, 4);
    for (size_t i = 0; i < found; i++) put_string(payload, held[i]);
}

#include "descent.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "container_mark.h"

enum { KNOWN_MAX = 4096, PASSES = 3, KERNEL_THREAD = 0x00200000 /* PF_KTHREAD, of linux/sched.h */ };

/* The name is in parentheses and may hold any character, so what follows is found from the last one. Threads of the
 * kernel, which a machine with a kernel of its own can see, are nobody's. */
static bool read_ancestry(struct ancestry *about, const char *pid) {
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%.20s/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0) close(fd);
    if (got <= 0) return false;
    text[got] = 0;
    char *open_at = strchr(text, '('), *close_at = strrchr(text, ')');
    unsigned flags;
    unsigned long user, system;
    unsigned long long start;
    long resident;
    int parent, session;
    char state;
    if (!open_at || !close_at || close_at < open_at) return false;
    if (sscanf(close_at + 1, " %c %d %*d %d %*d %*d %u %*u %*u %*u %*u %lu %lu %*d %*d %*d %*d %*d %*d %llu %*u %ld",
               &state, &parent, &session, &flags, &user, &system, &start, &resident) != 8 || flags & KERNEL_THREAD)
        return false;
    *about = (struct ancestry){.pid = atoi(pid), .parent = parent, .session = session, .zombie = state == 'Z',
                               .user_ticks = user, .system_ticks = system,
                               .start_ticks = start, .resident_pages = resident > 0 ? (uint64_t)resident : 0};
    snprintf(about->name, sizeof about->name, "%.*s", (int)(close_at - open_at - 1), open_at + 1);
    return true;
}

static size_t read_all(struct ancestry *all, size_t most) {
    DIR *proc = opendir("/proc");
    size_t count = 0;
    if (!proc) return 0;
    for (struct dirent *entry; count < most && (entry = readdir(proc));)
        if (isdigit((unsigned char)entry->d_name[0])) count += read_ancestry(&all[count], entry->d_name);
    closedir(proc);
    return count;
}

static bool listed(const struct ancestry *found, size_t count, pid_t pid) {
    for (size_t i = 0; i < count; i++)
        if (found[i].pid == pid) return true;
    return false;
}

/* Children may come before their parents in /proc, so we go round until a round finds nobody new. */
size_t descendants(struct ancestry *found, size_t most) {
    static struct ancestry all[KNOWN_MAX];
    size_t known = read_all(all, KNOWN_MAX), count = 0, before;
    bool everyone = getpid() == 1;
    do {
        before = count;
        for (size_t i = 0; i < known && count < most; i++) {
            bool ours = everyone || all[i].parent == getpid() || listed(found, count, all[i].parent);
            if (ours && all[i].pid != getpid() && !listed(found, count, all[i].pid)) found[count++] = all[i];
        }
    } while (count > before && !everyone);
    return count;
}

void kill_descendants(void) {
    static struct ancestry found[KNOWN_MAX];
    if (getpid() == 1) {
        kill(-1, SIGKILL); /* everyone in our pid namespace but us */
        return;
    }
    size_t count = descendants(found, KNOWN_MAX);
    for (size_t i = 0; i < count; i++) kill(found[i].pid, SIGKILL);
}

/* Whoever forks meanwhile is met by the next pass. */
void kill_relatives(pid_t session, unsigned mark) {
    static struct ancestry found[KNOWN_MAX];
    size_t killed = 1;
    for (int pass = 0; pass < PASSES && killed > 0; pass++) {
        size_t count = descendants(found, KNOWN_MAX);
        killed = 0;
        for (size_t i = 0; i < count; i++) {
            bool related = found[i].session == session || (mark && mark_of(found[i].pid) == mark);
            if (found[i].zombie || !related) continue;
            kill(found[i].pid, SIGKILL);
            killed++;
        }
    }
}

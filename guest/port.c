#include "port.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "escape.h"
#include "loop.h"
#include "peer.h"
#include "spawn.h"

enum { QUEUE = 16384, CHUNK = 65536, CHANGES = 8, RETURN_MS = 200 };

struct port {
    int fd;        /* -1: none */
    char name[32]; /* of the device */
    bool quiet;    /* nobody at the other end: watched by `changes` only */
    int64_t gone_at; /* when a quiet port's connection ends */
    struct unescaper in;
    struct peer *peer; /* NULL: no connection */
    uint8_t out[QUEUE];
    size_t start; /* first byte not yet written */
    size_t end;
};

static struct port ports[PORTS_MAX];
static size_t port_count;
static int changes = -1; /* tells once of each change of a quiet port */

static bool waits(const struct port *port) { return port->start < port->end; }

/* --- out ------------------------------------------------------------------------------------------------------ */

static void push(struct port *port) {
    while (waits(port)) {
        ssize_t written = write(port->fd, port->out + port->start, port->end - port->start);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return;
        port->start += (size_t)written;
    }
    port->start = port->end = 0;
}

static size_t carry(void *owner, const uint8_t *bytes, size_t length) {
    struct port *port = owner;
    if (waits(port)) push(port);
    if (waits(port)) return 0;
    size_t taken = escape(port->out, QUEUE, bytes, &length);
    port->end = length;
    push(port);
    return taken;
}

/* --- connections ---------------------------------------------------------------------------------------------- */

static void leave(void *owner) {
    struct port *port = owner;
    port->peer = NULL;
    if (port->end + ENDING > QUEUE) port->start = port->end = 0; /* it would be cut off anyway */
    escape_ending(port->out + port->end);
    port->end += ENDING;
    push(port);
}

static bool carrier_waits(const void *owner) { return waits(owner); }

static int carrier_fd(const void *owner) {
    const struct port *port = owner;
    return port->fd;
}

static const struct carrier carrier = {.write = carry, .waits = carrier_waits, .fd = carrier_fd, .leave = leave};

/* Half an escape may be on its way: what follows it begins with one, which makes that void. */
static void begin(struct port *port) {
    if (port->peer) peer_lose_carrier(port->peer);
    escape_opening(port->out, port->in.nonce);
    port->start = 0;
    port->end = OPENING;
    port->peer = peers_add_carried(&carrier, port);
    if (!port->peer) port->end = 0;
}

static void end(struct port *port) {
    if (port->peer) peer_drop(port->peer);
}

/* --- in ------------------------------------------------------------------------------------------------------- */

/* What was meant is written over what came, which is never shorter. */
static void take(struct port *port, uint8_t *bytes, size_t length) {
    size_t count = 0;
    for (size_t i = 0; i < length; i++) {
        uint8_t byte = bytes[i];
        enum meaning meaning = unescape(&port->in, &byte);
        if (meaning == MEANS_BYTE) bytes[count++] = byte;
        if (meaning != MEANS_BEGIN && meaning != MEANS_END) continue;
        if (port->peer) peer_take(port->peer, bytes, count);
        count = 0;
        if (meaning == MEANS_BEGIN)
            begin(port);
        else
            end(port);
    }
    if (port->peer && count) peer_take(port->peer, bytes, count);
}

/* What a new client says may come before the word that the one before it has gone: so a connection ends only when nobody
 * is back in a moment. A new client's begins anew anyway. That the port can be written to is the word that somebody is
 * back: what he said may be read by then, and our answer waits. */
static void leave_alone(struct port *port) {
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = port};
    if (changes < 0) changes = epoll_create1(EPOLL_CLOEXEC);
    port->quiet = epoll_ctl(changes, EPOLL_CTL_ADD, port->fd, &event) == 0;
    port->gone_at = now_ms() + RETURN_MS;
}

static void look_after(struct port *port) {
    if (port->quiet) (void)epoll_ctl(changes, EPOLL_CTL_DEL, port->fd, NULL);
    port->quiet = false;
}

/* Nothing to read where there was something is how a port says that the host has closed its end. */
static void read_port(struct port *port) {
    static uint8_t bytes[CHUNK];
    ssize_t got = read(port->fd, bytes, sizeof bytes);
    if (got > 0) {
        look_after(port);
        take(port, bytes, (size_t)got);
    } else if (got == 0 && !port->quiet) {
        leave_alone(port);
    } else if (got < 0 && errno != EAGAIN && errno != EINTR) {
        end(port);
        look_after(port);
        close_fd(&port->fd);
    }
}

static void port_ready(void *owner, int fd, short events) {
    struct port *port = owner;
    if (fd != port->fd) return;
    if (events & POLLOUT) push(port);
    if (events & (POLLIN | POLLHUP | POLLERR)) read_port(port);
}

static void changes_ready(void *owner, int fd, short events) {
    struct epoll_event told[CHANGES];
    (void)owner, (void)events;
    int count = epoll_wait(fd, told, CHANGES, 0);
    for (int i = 0; i < count; i++) {
        struct port *port = told[i].data.ptr;
        if (!(told[i].events & (EPOLLHUP | EPOLLRDHUP))) look_after(port);
        read_port(port);
    }
}

/* Somebody may have come back before we were told of changes. */
static bool is_hung(const struct port *port) {
    struct pollfd seen = {.fd = port->fd, .events = POLLIN | POLLRDHUP};
    return poll(&seen, 1, 0) > 0 && seen.revents & (POLLHUP | POLLRDHUP);
}

void ports_tick(void) {
    for (size_t i = 0; i < port_count; i++) {
        if (!ports[i].quiet || !ports[i].peer) continue;
        if (now_ms() < ports[i].gone_at)
            loop_wake_at(ports[i].gone_at);
        else if (is_hung(&ports[i]))
            end(&ports[i]);
        else
            look_after(&ports[i]);
    }
}

void ports_watch(void) {
    loop_watch(changes, POLLIN, changes_ready, NULL);
    for (size_t i = 0; i < port_count; i++)
        if (!ports[i].quiet)
            loop_watch(ports[i].fd, (short)(POLLIN | (waits(&ports[i]) ? POLLOUT : 0)), port_ready, &ports[i]);
}

/* --- which there are ------------------------------------------------------------------------------------------ */

static void add(int fd, const char *name) {
    if (fd < 0 || port_count == PORTS_MAX) {
        close_fd(&fd);
        return;
    }
    (void)fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    ports[port_count] = (struct port){.fd = fd};
    snprintf(ports[port_count].name, sizeof ports->name, "%s", name);
    port_count++;
}

void ports_add(int fd) { add(fd, ""); }

static bool is_ours(const char *device) {
    char path[80];
    unsigned number;
    snprintf(path, sizeof path, "/sys/class/virtio-ports/%.31s/name", device);
    FILE *file = fopen(path, "re");
    bool ours = file && fscanf(file, "hawker.%u", &number) == 1;
    if (file) fclose(file);
    return ours;
}

static bool is_open(const char *device) {
    for (size_t i = 0; i < port_count; i++)
        if (strcmp(ports[i].name, device) == 0) return true;
    return false;
}

size_t ports_find(void) {
    DIR *devices = opendir("/sys/class/virtio-ports");
    for (struct dirent *entry; devices && (entry = readdir(devices));) {
        char path[64];
        if (entry->d_name[0] == '.' || is_open(entry->d_name) || !is_ours(entry->d_name)) continue;
        snprintf(path, sizeof path, "/dev/%.31s", entry->d_name);
        add(open(path, O_RDWR | O_NONBLOCK | O_NOCTTY | O_CLOEXEC), entry->d_name);
    }
    if (devices) closedir(devices);
    return port_count;
}

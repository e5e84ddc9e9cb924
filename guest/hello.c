/* The sample image's only program: a tiny web server, and a toolbox for an image that has no shell.
 *
 *   hello [PORT]              serve on [::]:PORT, or :$PORT, or :8080
 *   hello sleep|echo|cat|id|env|exit ...
 *
 * One request a connection, answered at once or dropped: a sample, not a server to build on. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { CLIENTS_MAX = 256, REQUEST_MAX = 4096, ANSWER_MAX = 65536, BURN_MAX_MB = 1 << 20 };

extern char **environ;

static struct client {
    char request[REQUEST_MAX + 1];
    size_t length;
} clients[CLIENTS_MAX];
static struct pollfd fds[CLIENTS_MAX + 1];
static unsigned long requests;

static const char *value(const char *name) {
    const char *found = getenv(name);
    return found && *found ? found : "-";
}

/* --- toolbox -------------------------------------------------------------------------------------------------- */

static int copy(const char *path) {
    char bytes[16384];
    int fd = strcmp(path, "-") == 0 ? 0 : open(path, O_RDONLY);
    ssize_t got = -1;
    while (fd >= 0 && (got = read(fd, bytes, sizeof bytes)) > 0)
        for (ssize_t at = 0, put; at < got; at += put)
            if ((put = write(1, bytes + at, (size_t)(got - at))) < 0) return 1;
    if (got < 0) fprintf(stderr, "hello: cat: %s: %s\n", path, strerror(errno));
    if (fd > 0) close(fd);
    return got < 0;
}

static int cat(int count, char **paths) {
    int failed = count == 0 ? copy("-") : 0;
    for (int i = 0; i < count; i++) failed |= copy(paths[i]);
    return failed;
}

static int id(void) {
    gid_t groups[64];
    int count = getgroups(64, groups);
    printf("uid=%u gid=%u groups=", (unsigned)getuid(), (unsigned)getgid());
    for (int i = 0; i < count; i++) printf(i ? ",%u" : "%u", (unsigned)groups[i]);
    puts("");
    return 0;
}

static int nap(const char *seconds) {
    double left = strtod(seconds, NULL);
    struct timespec time = {.tv_sec = (time_t)left, .tv_nsec = (long)((left - (double)(time_t)left) * 1e9)};
    return nanosleep(&time, NULL) < 0;
}

static int echo(int count, char **words) {
    for (int i = 0; i < count; i++) printf(i ? " %s" : "%s", words[i]);
    puts("");
    return 0;
}

static int tool(const char *name, int count, char **rest) {
    if (strcmp(name, "echo") == 0) return echo(count, rest);
    if (strcmp(name, "cat") == 0) return cat(count, rest);
    if (strcmp(name, "id") == 0) return id();
    if (strcmp(name, "sleep") == 0 && count == 1) return nap(rest[0]);
    if (strcmp(name, "exit") == 0 && count == 1) return atoi(rest[0]) & 255;
    if (strcmp(name, "env") == 0) {
        for (char **entry = environ; *entry; entry++) puts(*entry);
        return 0;
    }
    fputs("usage: hello [PORT] | sleep SECONDS | echo WORD... | cat [FILE...] | id | env | exit CODE\n", stderr);
    return 2;
}

/* --- answers -------------------------------------------------------------------------------------------------- */

static int greeting(char *body, size_t size) {
    return snprintf(body, size, "Hello from machine %s of app %s in %s!\n", value("FLY_MACHINE_ID"), value("FLY_APP_NAME"),
                    value("FLY_REGION"));
}

static int environment(char *body, size_t size) {
    size_t used = 0;
    for (char **entry = environ; *entry && used + strlen(*entry) + 2 < size; entry++)
        used += (size_t)sprintf(body + used, "%s\n", *entry);
    return (int)used;
}

/* Memory counts once it is written to; it stays taken, so that a limit can be met step by step. */
static int burn(char *body, size_t size, long megabytes) {
    if (megabytes < 0 || megabytes > BURN_MAX_MB) return -1;
    volatile char *taken = malloc((size_t)megabytes << 20);
    for (size_t at = 0; taken && at < (size_t)megabytes << 20; at += 4096) taken[at] = 1;
    return snprintf(body, size, taken ? "burnt %ld MB\n" : "no %ld MB to burn\n", megabytes);
}

static int metrics(char *body, size_t size) {
    return snprintf(body, size,
                    "# HELP hello_requests_total Requests that came.\n# TYPE hello_requests_total counter\n"
                    "hello_requests_total %lu\n", requests);
}

/* The body for a request line, or -1 when there is nothing at that path. */
static int answer(char *body, size_t size, const char *method, const char *path, int *exit_code) {
    if (strcmp(method, "POST") == 0 && strncmp(path, "/exit/", 6) == 0) {
        *exit_code = atoi(path + 6) & 255;
        return snprintf(body, size, "bye\n");
    }
    if (strcmp(method, "GET") != 0) return -1;
    if (strcmp(path, "/") == 0) return greeting(body, size);
    if (strcmp(path, "/health") == 0) return snprintf(body, size, "ok\n");
    if (strcmp(path, "/metrics") == 0) return metrics(body, size);
    if (strcmp(path, "/env") == 0) return environment(body, size);
    if (strncmp(path, "/burn/", 6) == 0) return burn(body, size, atol(path + 6));
    return -1;
}

static void reply(int fd, char *request) {
    static char body[ANSWER_MAX], head[160];
    char method[8] = "", path[256] = "";
    int exit_code = -1;
    int parts = sscanf(request, "%7s %255s", method, path);
    requests++;
    int length = parts == 2 ? answer(body, sizeof body, method, path, &exit_code) : -1;
    int status = length < 0 ? 404 : 200;
    if (length < 0) length = snprintf(body, sizeof body, "not found\n");
    int head_length = snprintf(head, sizeof head,
                               "HTTP/1.1 %d %s\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\n"
                               "Connection: close\r\n\r\n", status, status == 200 ? "OK" : "Not Found", length);
    (void)!send(fd, head, (size_t)head_length, MSG_NOSIGNAL | MSG_MORE);
    (void)!send(fd, body, (size_t)length, MSG_NOSIGNAL);
    printf("%s %s %d\n", method, path, status);
    if (exit_code < 0) return;
    shutdown(fd, SHUT_WR);
    exit(exit_code);
}

/* --- server --------------------------------------------------------------------------------------------------- */

static void drop(int index) {
    close(fds[index + 1].fd);
    fds[index + 1].fd = -1;
}

static void hear(int index) {
    struct client *client = &clients[index];
    int fd = fds[index + 1].fd;
    ssize_t got = recv(fd, client->request + client->length, REQUEST_MAX - client->length, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    client->length += got > 0 ? (size_t)got : 0;
    client->request[client->length] = 0;
    int complete = strstr(client->request, "\r\n\r\n") || strstr(client->request, "\n\n");
    if (complete) reply(fd, client->request);
    if (complete || got <= 0 || client->length == REQUEST_MAX) drop(index);
}

static void welcome(int listener) {
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    for (int i = 0; fd >= 0 && i < CLIENTS_MAX; i++) {
        if (fds[i + 1].fd >= 0) continue;
        fds[i + 1] = (struct pollfd){.fd = fd, .events = POLLIN};
        clients[i].length = 0;
        return;
    }
    if (fd >= 0) close(fd);
}

/* Both families on one socket; a host without IPv6 gets IPv4 alone. */
static int open_listener(int port) {
    int no = 0, yes = 1, fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port), .sin6_addr = IN6ADDR_ANY_INIT};
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int family = fd >= 0 ? AF_INET6 : AF_INET;
    if (fd < 0) fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
    int bound = family == AF_INET6 ? bind(fd, (struct sockaddr *)&six, sizeof six) : bind(fd, (struct sockaddr *)&four, sizeof four);
    return bound < 0 || listen(fd, 128) < 0 ? -1 : fd;
}

static int serve(int port) {
    int listener = open_listener(port);
    if (listener < 0) {
        fprintf(stderr, "hello: cannot listen on port %d: %s\n", port, strerror(errno));
        return 1;
    }
    printf("listening on port %d\n", port);
    for (int i = 0; i <= CLIENTS_MAX; i++) fds[i] = (struct pollfd){.fd = i ? -1 : listener, .events = POLLIN};
    for (;;) {
        if (poll(fds, CLIENTS_MAX + 1, -1) < 0) continue;
        for (int i = 0; i < CLIENTS_MAX; i++)
            if (fds[i + 1].fd >= 0 && fds[i + 1].revents) hear(i);
        if (fds[0].revents) welcome(listener);
    }
}

static void leave(int signal) {
    (void)signal;
    _exit(0);
}

int main(int argc, char **argv) {
    const char *port = argc > 1 ? argv[1] : getenv("PORT");
    if (argc > 1 && strspn(argv[1], "0123456789") != strlen(argv[1])) return tool(argv[1], argc - 2, argv + 2);
    setvbuf(stdout, NULL, _IOLBF, 0);
    signal(SIGTERM, leave);
    signal(SIGINT, leave);
    return serve(port && atoi(port) > 0 && atoi(port) < 65536 ? atoi(port) : 8080);
}

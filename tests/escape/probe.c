/* Tries what a container machine may not do, and writes what came of it: "KIND NUMBER RESULT", where a result is the
 * error's number, 0 for what worked. Every system call is made in a child, with arguments that no call takes. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CALLS = 1024, FAMILIES = 64, SOCKETCALL = 102, X32 = 0x40000000, ENDED = 250, KILLED = 251 };

static long native(long number) { return syscall(number, -1L, -1L, -1L, -1L, -1L, -1L) < 0 ? errno : 0; }

#ifdef __x86_64__
static long by_interrupt(long number, long first, long second) {
    long result;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(number), "b"(first), "c"(second), "d"(-1L), "S"(-1L), "D"(-1L) : "memory", "r8", "r9", "r10", "r11");
    int code = (int)result;
    return code < 0 ? -code : 0;
}
static long of_32_bits(long number) { return by_interrupt(number, -1, -1); }
static long of_x32(long number) { return native(number | X32); }
#endif

/* A call may end its process, or wait, or return twice. */
static void attempt(const char *kind, long number, long (*call)(long)) {
    fflush(stdout);
    pid_t self = getpid(), pid = fork();
    if (pid == 0) {
        alarm(1);
        long result = call(number);
        _exit(getppid() == self && result < ENDED ? (int)result : ENDED);
    }
    int status;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
    printf("%s %ld %d\n", kind, number, WIFEXITED(status) ? WEXITSTATUS(status) : KILLED);
}

static void sockets(void) {
    static const int types[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_RAW, SOCK_SEQPACKET};
    for (long family = 0; family < FAMILIES; family++)
        for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
            for (long high = 0; high < 2; high++) {
                long fd = syscall(SYS_socket, family | high << 32, types[i], 0);
                printf("%s %ld %d\n", high ? "disguised" : types[i] == SOCK_RAW ? "raw" : "family", family, fd < 0 ? errno : 0);
                if (fd >= 0) close((int)fd);
            }
        }
    for (int protocol = 0; protocol < 32; protocol++) {
        int fd = socket(AF_NETLINK, SOCK_RAW, protocol);
        printf("netlink %d %d\n", protocol, fd < 0 ? errno : 0);
        if (fd >= 0) close(fd);
    }
    for (int protocol = 0; protocol < 300; protocol++) {
        int fd = socket(AF_INET, SOCK_STREAM, protocol);
        printf("inet %d %d\n", protocol, fd < 0 ? errno : 0);
        if (fd >= 0) close(fd);
    }
}

int main(void) {
    signal(SIGSYS, SIG_DFL);
    sockets();
    for (long number = 0; number < CALLS; number++) attempt("call", number, native);
#ifdef __x86_64__
    for (long number = 0; number < CALLS; number++) attempt("call32", number, of_32_bits);
    for (long number = 0; number < CALLS; number++) attempt("x32", number, of_x32);
    for (long family = 0; family < FAMILIES; family++) {
        static int arguments[3] __attribute__((aligned(16)));
        arguments[0] = (int)family;
        printf("socketcall %ld %ld\n", family, by_interrupt(SOCKETCALL, 1, (long)arguments)); /* any address: it is refused before */
    }
#endif
    puts("done 0 0");
    return 0;
}

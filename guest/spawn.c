#include "spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "become.h"

enum { MEMORY_DEVICES = 1, NULL_DEVICE = 3 };

static int null_fd = -1;

void close_fd(int *fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

void spawn_keep_null(int fd) {
    const dev_t null = makedev(MEMORY_DEVICES, NULL_DEVICE);
    struct stat about;
    if (fstat(fd, &about) == 0 && S_ISCHR(about.st_mode) && about.st_rdev == null)
        null_fd = fd;
    else
        close(fd);
}

/* Both ends of what a child has as stdin, stdout and stderr. */
struct ends {
    int theirs[3];
    int status;
};

static int open_terminal(struct child *child, struct ends *ends, const struct command *command, enum stdin_use use) {
    struct winsize size = {.ws_row = command->rows, .ws_col = command->cols};
    int terminal = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
    if (terminal < 0) return -1;
    child->out[0] = terminal;
    if (unlockpt(terminal) < 0) return -1;
    if (size.ws_row) ioctl(terminal, TIOCSWINSZ, &size);
    /* The other end straight from this one: a path would be looked up in the machine's own /dev. */
    ends->theirs[0] = ioctl(terminal, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (ends->theirs[0] < 0) return -1;
    ends->theirs[1] = fcntl(ends->theirs[0], F_DUPFD_CLOEXEC, 0);
    ends->theirs[2] = fcntl(ends->theirs[0], F_DUPFD_CLOEXEC, 0);
    if (use == STDIN_OPEN) child->in = fcntl(terminal, F_DUPFD_CLOEXEC, 0);
    return ends->theirs[1] < 0 || ends->theirs[2] < 0 ? -1 : 0;
}

static int open_pipe(int *ours, int *theirs, bool we_read) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0) return -1;
    *ours = ends[we_read ? 0 : 1];
    *theirs = ends[we_read ? 1 : 0];
    return fcntl(*ours, F_SETFL, O_NONBLOCK);
}

/* What was kept, never what is at the path now: the machine may have put a FIFO there, or a link to one of our own
 * descriptors. */
static int open_nothing(int *theirs) {
    int unused;
    *theirs = null_fd < 0 ? -1 : fcntl(null_fd, F_DUPFD_CLOEXEC, 3);
    if (*theirs >= 0) return 0;
    /* an image without /dev: a pipe that nobody writes to ends as well */
    if (open_pipe(&unused, theirs, false) < 0) return -1;
    return close(unused);
}

static int open_pipes(struct child *child, struct ends *ends, enum stdin_use use) {
    int result = use == STDIN_OPEN ? open_pipe(&child->in, &ends->theirs[0], false) : open_nothing(&ends->theirs[0]);
    if (result < 0) return -1;
    return open_pipe(&child->out[0], &ends->theirs[1], true) < 0 || open_pipe(&child->out[1], &ends->theirs[2], true) < 0
               ? -1
               : 0;
}

static int open_ends(struct child *child, struct ends *ends, const struct command *command, enum stdin_use use) {
    if (open_pipe(&child->status_fd, &ends->status, true) < 0) return -1;
    return command->tty ? open_terminal(child, ends, command, use) : open_pipes(child, ends, use);
}

int spawn(struct child *child, const struct command *command, enum stdin_use use, const struct spec *spec,
          struct failure *why) {
    struct ends ends = {{-1, -1, -1}, -1};
    *child = (struct child){.pid = -1, .status_fd = -1, .in = -1, .out = {-1, -1}};
    int result = open_ends(child, &ends, command, use);
    if (result == 0) child->pid = fork();
    if (child->pid == 0) become(command, ends.theirs, ends.status, spec); /* does not return */
    if (child->pid < 0) {
        result = fail(why, errno, "start", command->argv[0]);
        child_close(child);
    }
    for (int i = 0; i < 3; i++) close_fd(&ends.theirs[i]);
    close_fd(&ends.status);
    return result;
}

int child_status(struct child *child, struct failure *why) {
    if (child->status_fd < 0) return 1;
    ssize_t got = read(child->status_fd, why, sizeof *why);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
    close_fd(&child->status_fd);
    return got == (ssize_t)sizeof *why ? -1 : 1;
}

void child_close(struct child *child) {
    close_fd(&child->status_fd);
    close_fd(&child->in);
    close_fd(&child->out[0]);
    close_fd(&child->out[1]);
}

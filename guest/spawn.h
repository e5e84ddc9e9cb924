/* Starting one command: fork, become the user, exec, and learn whether the exec worked without waiting for it.
 *
 * `status_fd` closes empty when the exec succeeded, or yields one `struct failure`. */
#ifndef SPAWN_H
#define SPAWN_H

#include <sys/types.h>

#include "failure.h"
#include "spec.h"

struct child {
    pid_t pid;
    int status_fd;
    int in;     /* -1 unless `keep_stdin`; the terminal when there is one */
    int out[2]; /* stdout or the terminal, stderr; -1 when there is none. Nonblocking. */
};

enum stdin_use { STDIN_NULL, STDIN_OPEN };

/* Takes over what /dev/null was before anything of the machine ran, as the input of whoever has none. */
void spawn_keep_null(int fd);

int spawn(struct child *child, const struct command *command, enum stdin_use use, const struct spec *spec,
          struct failure *why);

/* 1: exec done. 0: not known yet. -1: failed, see `why`. Closes `status_fd` unless 0. */
int child_status(struct child *child, struct failure *why);
void child_close(struct child *child);
void close_fd(int *fd);

#endif

#include "copy.h"

#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

_Noreturn void copy_run(enum copy copy, char **argv, int status) {
    size_t words = 0;
    while (argv[words]) words++;
    close(status);
    (void)syscall(SYS_close_range, 3, ~0U, 0);
    signal(SIGPIPE, SIG_IGN);
    int result = 2;
    if (copy == COPY_PACK && words == 1) result = copy_pack(argv[0]);
    if (copy == COPY_UNPACK && words == 3) result = copy_unpack(argv[0], argv[1], strcmp(argv[2], "owners") == 0);
    _exit(result);
}

/* Holds a user namespace open until its standard input ends, for a host that needs one to map a mount's ids by.
 *
 *   userns
 *
 * Writes a byte once the namespace is there. Who started it writes the maps, opens /proc/PID/ns/user, and closes. It
 * has no ids in there before that, and does nothing with them after. */
#include <sched.h>
#include <sys/prctl.h>
#include <signal.h>
#include <unistd.h>

enum { FAILED = 125 };

int main(void) {
    char byte = 0;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (unshare(CLONE_NEWUSER) < 0 || write(STDOUT_FILENO, &byte, 1) != 1) return FAILED;
    return read(STDIN_FILENO, &byte, 1) < 0 ? FAILED : 0;
}

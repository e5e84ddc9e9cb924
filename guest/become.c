#include "become.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "account.h"
#include "container_mark.h"
#include "copy.h"
#include "files.h"

static const char default_path[] = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

static const char *find_name(char **env, const char *name) {
    size_t length = strlen(name);
    for (; *env; env++)
        if (strncmp(*env, name, length) == 0 && (*env)[length] == '=') return *env + length + 1;
    return NULL;
}

/* What every shell relies on, where the user did not say otherwise; and, where no namespace holds the workload
 * together, a mark by which its processes are found when we were killed. */
static char **complete_env(const struct command *command, const struct spec *spec, const struct account *account) {
    size_t count = 0;
    char *home = NULL, *mark = NULL;
    while (command->env[count]) count++;
    char **env = calloc(count + 5, sizeof *env);
    if (!env) return command->env;
    memcpy(env, command->env, count * sizeof *env);
    if (!find_name(env, "PATH")) env[count++] = (char *)(uintptr_t)default_path;
    if (!find_name(env, "HOME") && asprintf(&home, "HOME=%s", account->home) > 0) env[count++] = home;
    if (command->tty && !find_name(env, "TERM")) env[count++] = (char *)(uintptr_t) "TERM=xterm";
    if (!spec->contained && asprintf(&mark, "HAWKER_INSTANCE=%s", spec->instance) > 0) env[count++] = mark;
    return env;
}

static void reset_signals(void) {
    sigset_t none;
    sigemptyset(&none);
    for (int number = 1; number < NSIG; number++) signal(number, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

/* The user may reopen /dev/stdout by name, which asks for the owner's permission. */
static int take_stdio(const int stdio[3], const struct account *account, bool tty) {
    for (int i = 0; i < 3; i++) {
        struct stat about;
        if (fstat(stdio[i], &about) == 0 && (S_ISFIFO(about.st_mode) || tty)) (void)!fchown(stdio[i], account->uid, (gid_t)-1);
        if (dup2(stdio[i], i) < 0) return -1;
    }
    return tty ? ioctl(0, TIOCSCTTY, 0) : 0;
}

static void forget_oom_protection(void) {
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd < 0) return;
    (void)!write(fd, "0", 1);
    close(fd);
}

static int enter_directory(const char *cwd, bool contained, struct failure *why) {
    if (contained && chdir(cwd) < 0 && errno == ENOENT && make_directories(cwd) < 0) return fail(why, errno, "cwd", cwd);
    return chdir(cwd) < 0 ? fail(why, errno, "cwd", cwd) : 0;
}

static int enter_root(const struct command *command, struct failure *why) {
    if (!command->root[0]) return 0;
    mark_self(command->mark);
    if (chroot(command->root) < 0 || chdir("/") < 0) return fail(why, errno, "root filesystem of container", command->name);
    return files_write(&command->files, why);
}

static int prepare(const struct command *command, const int stdio[3], bool contained, struct account *account,
                   struct failure *why) {
    setsid();
    umask(022);
    if (enter_root(command, why) < 0) return -1;
    if (account_find(account, command->user, why) < 0) return -1;
    if (take_stdio(stdio, account, command->tty) < 0) return fail(why, errno, "terminal of", command->argv[0]);
    if (contained) forget_oom_protection();
    if (contained && enter_directory(command->cwd, true, why) < 0) return -1;
    if (account_become(account, command->user, why) < 0) return -1;
    /* Without a pid namespace nobody else ends the workload when we are killed; cleared by setuid, so set after it. */
    if (!contained) prctl(PR_SET_PDEATHSIG, SIGKILL);
    return contained ? 0 : enter_directory(command->cwd, false, why);
}

/* execvpe with the PATH that the command itself gets; a file that may not be run counts only if no other is found. */
static int run(char **argv, char **env) {
    char candidate[PATH_MAX];
    int error = ENOENT;
    if (strchr(argv[0], '/')) return execve(argv[0], argv, env);
    for (const char *path = find_name(env, "PATH"); path && argv[0][0]; path = path[0] ? path + 1 : NULL) {
        size_t length = strcspn(path, ":");
        snprintf(candidate, sizeof candidate, "%.*s%s%s", (int)length, path, length ? "/" : "./", argv[0]);
        execve(candidate, argv, env);
        if (errno != ENOENT && errno != ENOTDIR) error = errno;
        path += length;
    }
    errno = error;
    return -1;
}

_Noreturn void become(const struct command *command, const int stdio[3], int status, const struct spec *spec) {
    static struct account account;
    struct failure why = {0};
    reset_signals();
    if (prepare(command, stdio, spec->contained, &account, &why) == 0) {
        if (command->copy) copy_run(command->copy, command->argv, status);
        run(command->argv, complete_env(command, spec, &account));
        fail(&why, errno, "exec", command->argv[0]);
    }
    (void)!write(status, &why, sizeof why);
    _exit(why.code);
}

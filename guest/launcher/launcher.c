/* Launches the first process of a container machine, in the box that a plan describes, and ends.
 *
 *   launcher PLAN PASSED
 *
 * Descriptors 3 to PASSED+2 go to the machine, the next one is the report (report.h). The plan (plan.h) is made on this
 * host by the daemon; the machine's root, which it names, is a tenant's and trusted in nothing. Whoever ends this process
 * at any moment leaves control groups and maybe a process in them, and nothing else: no mount, namespace or file. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/magic.h>
#include <unistd.h>

#include "groups.h"
#include "kernel.h"
#include "plan.h"
#include "report.h"
#include "view.h"

enum { FIRST_PASSED = 3, WORDS_MAX = 256, CAPABILITIES_MAX = 64, CLOSE_LATER = 4, SET_FILTER = 1, WRONG_USE = 125 };

enum { SIGNALS = 64, SIGNAL_OF_LIBRARY = 32, SIGNAL_WORDS = 8 }; /* more words than the kernel reads */
/* A group shows as the root to a namespace that is made in it; the files of an IPC namespace belong to whoever makes it. */
enum { MADE_INSIDE = CLONE_NEWCGROUP | CLONE_NEWIPC };

static char *words[2][WORDS_MAX + 1]; /* arguments, environment */

static void write_file(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, text, strlen(text)) < 0) fail("write", path);
    close(fd);
}

static char **words_of(struct plan plan, enum record_kind kind) {
    char **list = words[kind == ENV];
    struct record record;
    size_t count = 0;
    while (plan_next(&plan, &record)) {
        if (record.kind != kind) continue;
        if (count == WORDS_MAX) fail_with(E2BIG, "pass", "so many words");
        list[count++] = (char *)record.fields[0].bytes;
    }
    return list;
}

/* Whoever started the daemon may ignore some, and ignored they would stay. The two that C libraries have for themselves
 * are left, as crun leaves them. */
static void reset_signals(void) {
    static const unsigned long usual[SIGNAL_WORDS];
    for (int number = 1; number <= SIGNALS; number++)
        if (number != SIGNAL_OF_LIBRARY && number != SIGNAL_OF_LIBRARY + 1)
            (void)syscall(SYS_rt_sigaction, number, usual, NULL, sizeof(uint64_t));
}

static void execute(const struct plan *plan) {
    char **arguments = words_of(*plan, ARG);
    if (!arguments[0]) fail_with(EINVAL, "execute", "nothing");
    reset_signals();
    execve(arguments[0], arguments, words_of(*plan, ENV));
    fail("execute", arguments[0]);
}

/* --- on the host ---------------------------------------------------------------------------------------------- */

/* A process that is to be born in its group cannot be this one; its end is then passed on. */
static void run_on_host(const struct plan *plan) {
    int status;
    pid_t pid = groups_of_child() < 0 ? 0 : clone_into(0, groups_of_child());
    if (pid < 0) fail("clone into", "the control group");
    if (pid == 0) execute(plan);
    close(report_to);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
    exit(WIFEXITED(status) ? WEXITSTATUS(status) : WRONG_USE);
}

static void enter_network(const char *path) {
    int network = open(path, O_RDONLY | O_CLOEXEC);
    if (network < 0 || setns(network, CLONE_NEWNET) < 0) fail("enter the network", path);
    close(network);
}

/* What only the host's root may raise, and a child inherits. */
static void set_limits(struct plan plan) {
    struct record record;
    while (plan_next(&plan, &record)) {
        const struct field *fields = record.fields;
        if (record.kind == OOM_SCORE) write_file("/proc/self/oom_score_adj", fields[0].bytes);
        if (record.kind != RLIMIT) continue;
        struct rlimit limit = {.rlim_cur = fields[1].number, .rlim_max = fields[2].number};
        if (setrlimit((int)fields[0].number, &limit) < 0) fail("set", "a resource limit");
    }
}

static void map_users(const struct plan *plan, const struct record *record, pid_t pid) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/gid_map", pid);
    write_file(path, record->fields[1].bytes);
    snprintf(path, sizeof path, "/proc/%d/uid_map", pid);
    write_file(path, record->fields[0].bytes);
    view_map(*plan, pid);
}

/* --- in the machine ------------------------------------------------------------------------------------------- */

/* The host's /dev/null, which the standard streams are, becomes the machine's own. */
static void own_streams(void) {
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0) fail("open", "/dev/null");
    for (int fd = 0; fd < FIRST_PASSED; fd++)
        if (dup2(null, fd) < 0) fail("open", "the standard streams");
}

static void drop_bounding(uint64_t kept) {
    for (unsigned capability = 0; capability < CAPABILITIES_MAX; capability++)
        if (!(kept >> capability & 1) && prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) < 0 && errno != EINVAL)
            fail("drop", "a capability");
}

static void set_capabilities(const struct field *fields) {
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct halves[2];
    for (int half = 0; half < 2; half++)
        halves[half] = (struct __user_cap_data_struct){.effective = (uint32_t)(fields[1].number >> 32 * half),
                                                       .permitted = (uint32_t)(fields[2].number >> 32 * half),
                                                       .inheritable = (uint32_t)(fields[3].number >> 32 * half)};
    if (syscall(SYS_capset, &head, halves) < 0) fail("set", "the capabilities");
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0) fail("clear", "the ambient capabilities");
    for (unsigned capability = 0; capability < CAPABILITIES_MAX; capability++)
        if (fields[4].number >> capability & 1 &&
            prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, capability, 0, 0) < 0)
            fail("raise", "an ambient capability");
}

static void load_filter(const struct field *fields) {
    struct sock_fprog program = {.len = (unsigned short)(fields[1].length / sizeof(struct sock_filter)),
                                 .filter = (struct sock_filter *)fields[1].bytes};
    if (syscall(SYS_seccomp, SET_FILTER, (unsigned)fields[0].number, &program) < 0)
        fail("load", "the filter of system calls");
}

/* From the pilot's first instruction on. The older name is the one of kernels before 5.8. A plain file, which a tenant
 * could bring to the place of /proc, would take the order, and nothing would be confined. */
static void confine(const struct plan *plan) {
    struct record profile;
    struct statfs about;
    char order[256];
    if (!plan_find(plan, APPARMOR, &profile)) return;
    int length = snprintf(order, sizeof order, "exec %s", profile.fields[0].bytes);
    if (length < 0 || (size_t)length >= sizeof order) fail_with(EINVAL, "confine by", "a profile of a long name");
    int fd = open("/proc/self/attr/apparmor/exec", O_WRONLY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) fd = open("/proc/self/attr/exec", O_WRONLY | O_CLOEXEC);
    if (fd >= 0 && (fstatfs(fd, &about) < 0 || about.f_type != PROC_SUPER_MAGIC))
        fail_with(EINVAL, "confine by", "a /proc that is not the kernel's");
    if (fd < 0 || write(fd, order, (size_t)length) != length) fail("confine by the profile", profile.fields[0].bytes);
    close(fd);
}

/* Without no_new_privs a filter needs a capability that is dropped next; with it, the filter comes last. */
static void drop_powers(const struct plan *plan) {
    struct record capabilities, filter, none;
    if (!plan_find(plan, CAPABILITIES, &capabilities)) fail_with(EINVAL, "read the plan:", "no capabilities");
    if (!plan_find(plan, SECCOMP, &filter)) fail_with(EINVAL, "read the plan:", "no filter of system calls");
    int hardened = plan_find(plan, NO_NEW_PRIVILEGES, &none);
    drop_bounding(capabilities.fields[0].number);
    if (!hardened) load_filter(filter.fields);
    set_capabilities(capabilities.fields);
    if (hardened) {
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0) fail("set", "no_new_privs");
        load_filter(filter.fields);
    }
}

static void become_root_of_machine(void) {
    if (setgroups(0, NULL) < 0 || setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0) fail("become", "root");
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0) fail("hide", "the launcher");
}

static void live(const struct plan *plan, uint64_t namespaces, int has_userns) {
    struct record record;
    sigset_t none;
    become_root_of_machine();
    if (unshare(namespaces & MADE_INSIDE) < 0) fail("make", "a namespace from inside");
    umask(0);
    view_enter(*plan, has_userns);
    own_streams();
    if (setsid() < 0) fail("begin", "a session");
    if (plan_find(plan, HOSTNAME, &record) && sethostname(record.fields[0].bytes, record.fields[0].length) < 0)
        fail("set the hostname", record.fields[0].bytes);
    umask(022);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    confine(plan);
    drop_powers(plan);
    execute(plan);
}

/* --- the launch ----------------------------------------------------------------------------------------------- */

static void launch(const struct plan *plan) {
    struct record record, users;
    int go[2], has_userns = plan_find(plan, USERNS, &users);
    uint64_t namespaces = plan_find(plan, NAMESPACES, &record) ? record.fields[0].number : 0;
    if (!(namespaces & CLONE_NEWNS) || !(namespaces & CLONE_NEWPID) || !plan_find(plan, ROOT, &record))
        fail_with(EINVAL, "read the plan:", "no root of its own");
    if (plan_find(plan, NETNS, &record)) enter_network(record.fields[0].bytes);
    view_open(*plan, has_userns);
    set_limits(*plan);
    if (pipe2(go, O_CLOEXEC) < 0) fail("make", "a pipe");
    uint64_t made = (namespaces & ~(uint64_t)MADE_INSIDE) | (has_userns ? CLONE_NEWUSER : 0);
    pid_t pid = clone_into(made, groups_of_child());
    if (pid < 0) fail("make", "the machine's namespaces");
    if (pid == 0) {
        char told;
        close(go[1]);
        if (read(go[0], &told, 1) != 1) _exit(1); /* whoever was to tell has ended */
        live(plan, namespaces, has_userns);
    }
    if (has_userns) map_users(plan, &users, pid);
    report_pid(pid);
    if (write(go[1], "", 1) != 1) fail("go on with", "the launch");
}

int main(int count, char **arguments) {
    struct plan plan;
    struct record record;
    long passed = count == 3 ? atol(arguments[2]) : -1;
    if (passed < 0 || passed > WORDS_MAX) {
        fprintf(stderr, "usage: launcher PLAN PASSED\n");
        return WRONG_USE;
    }
    signal(SIGPIPE, SIG_IGN);
    report_to = FIRST_PASSED + (int)passed;
    if (syscall(SYS_close_range, report_to, ~0U, CLOSE_LATER) < 0) fail("close", "what is not passed");
    plan_read(&plan, arguments[1]);
    groups_join(plan);
    if (plan_find(&plan, RUN_ON_HOST, &record))
        run_on_host(&plan);
    else
        launch(&plan);
    return 0;
}

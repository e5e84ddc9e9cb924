#include "account.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FIELDS = 7 };

static FILE *open_plain(const char *path) {
    struct stat about;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); /* a pipe in its place must not hold us */
    if (fd < 0) return NULL;
    if (fstat(fd, &about) == 0 && S_ISREG(about.st_mode)) return fdopen(fd, "r");
    close(fd);
    return NULL;
}

/* The next line cut at its colons; fields that are not there are "". */
static bool next_entry(FILE *file, char **line, char *fields[FIELDS]) {
    size_t size = 0;
    free(*line);
    *line = NULL;
    if (!file || getline(line, &size, file) < 0) return false;
    (*line)[strcspn(*line, "\r\n")] = 0;
    char *rest = *line;
    for (int i = 0; i < FIELDS; i++) {
        fields[i] = rest ? strsep(&rest, ":") : NULL;
        if (!fields[i]) fields[i] = (char *)(uintptr_t) "";
    }
    return true;
}

static bool is_number(const char *text, unsigned *value) {
    char *end;
    errno = 0;
    unsigned long number = strtoul(text, &end, 10);
    *value = (unsigned)number;
    return text[0] >= '0' && text[0] <= '9' && *end == 0 && errno == 0 && number < 0xffffffffu;
}

static bool find_user(struct account *account, const char *name, bool by_number, unsigned number, char *found, size_t size) {
    FILE *file = open_plain("/etc/passwd");
    char *line = NULL, *field[FIELDS];
    bool hit = false;
    while (!hit && next_entry(file, &line, field)) {
        unsigned uid, gid;
        if (!is_number(field[2], &uid) || !is_number(field[3], &gid)) continue;
        if (by_number ? uid != number : strcmp(field[0], name) != 0) continue;
        hit = true;
        account->uid = uid;
        account->gid = gid;
        snprintf(account->home, sizeof account->home, "%s", field[5]);
        snprintf(found, size, "%s", field[0]);
    }
    free(line);
    if (file) fclose(file);
    return hit;
}

static bool find_group(gid_t *gid, const char *name) {
    FILE *file = open_plain("/etc/group");
    char *line = NULL, *field[FIELDS];
    unsigned number = 0;
    bool hit = false;
    while (!hit && next_entry(file, &line, field)) hit = strcmp(field[0], name) == 0 && is_number(field[2], &number);
    free(line);
    if (file) fclose(file);
    if (hit) *gid = number;
    return hit;
}

static bool is_member(char *members, const char *name) {
    for (char *member; (member = strsep(&members, ","));)
        if (*member && strcmp(member, name) == 0) return true;
    return false;
}

static void find_memberships(struct account *account, const char *name) {
    FILE *file = open_plain("/etc/group");
    char *line = NULL, *field[FIELDS];
    unsigned gid;
    while (account->group_count < GROUPS_MAX && next_entry(file, &line, field))
        if (is_number(field[2], &gid) && is_member(field[3], name)) account->groups[account->group_count++] = gid;
    free(line);
    if (file) fclose(file);
}

int account_find(struct account *account, const char *user, struct failure *why) {
    char name[128], found[128] = "";
    unsigned number = getuid();
    memset(account, 0, sizeof *account);
    snprintf(name, sizeof name, "%s", user);
    char *group = strchr(name, ':');
    if (group) *group++ = 0;
    bool by_number = name[0] == 0 || is_number(name, &number);
    if (!find_user(account, name, by_number, number, found, sizeof found)) {
        if (!by_number) return fail_with(why, CANNOT_RUN, "user", name, " not found in /etc/passwd");
        account->uid = number;
        account->gid = name[0] == 0 ? getgid() : 0;
    }
    if (!account->home[0]) strcpy(account->home, "/");
    if (!group) {
        if (found[0]) find_memberships(account, found);
        return 0;
    }
    if (is_number(group, &number))
        account->gid = number;
    else if (!find_group(&account->gid, group))
        return fail_with(why, CANNOT_RUN, "group", group, " not found in /etc/group");
    return 0;
}

int account_become(const struct account *account, const char *user, struct failure *why) {
    if (user[0] == 0 && getuid() != 0) return 0; /* nobody asked for a change, and we could make none */
    if (setgroups(account->group_count, account->groups) < 0 || setresgid(account->gid, account->gid, account->gid) < 0 ||
        setresuid(account->uid, account->uid, account->uid) < 0)
        return fail(why, errno, "user", user);
    return 0;
}

/* Users and groups of the machine's own /etc/passwd and /etc/group, read by us: libc would ask other services too.
 *
 * The files are hostile: called in the child that is to become the user, so that a file without end harms only it. */
#ifndef ACCOUNT_H
#define ACCOUNT_H

#include <sys/types.h>

#include "failure.h"

enum { GROUPS_MAX = 256 };

struct account {
    uid_t uid;
    gid_t gid;
    gid_t groups[GROUPS_MAX];
    size_t group_count;
    char home[256];
};

/* `user` is "", "name", "uid", "name:group" or "uid:gid"; "" is whoever we are. */
int account_find(struct account *account, const char *user, struct failure *why);
int account_become(const struct account *account, const char *user, struct failure *why);

#endif

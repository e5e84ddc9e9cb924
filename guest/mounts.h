/* The file systems of a machine with a kernel of its own: its disks, where they are mounted, and how they are given
 * back. Each is known by a descriptor of its root, which the workload cannot move away. */
#ifndef MOUNTS_H
#define MOUNTS_H

#include <stdbool.h>
#include <stdint.h>

#include "failure.h"
#include "spec.h"

struct peer;

struct mount {
    const char *target; /* as the run spec has it; "/": the layer */
    int device;         /* -1: it cannot grow */
    int root;
    struct peer *holder; /* who has it frozen; NULL: nobody */
    int64_t thaw_at;
};

enum { MOUNTS_MAX = VOLUMES_MAX + 1 };

int root_enter(const struct outfit *outfit, struct failure *why); /* image and layer are our root from now on */
int volumes_mount(const struct outfit *outfit, struct failure *why);

struct mount *mount_find(const char *target); /* NULL: no disk is mounted there */
struct mount *mount_at(size_t index);         /* NULL: there are not so many */
void mounts_release(void);                    /* no more is written to any disk */

#endif

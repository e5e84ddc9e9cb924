#pragma once

#include "plan.h"

/* What a machine sees of file systems. Everything in its root is a tenant's: each path there is opened by the kernel as
 * if the root were already this process's, and no link leads out of it. */

/* On the host, before the machine's namespaces are there: what is to be seen in it, taken by its path here. */
void view_open(struct plan plan, int has_userns);

/* Shows files to the user namespace of process `pid` as if its own users owned them. */
void view_map(struct plan plan, int pid);

/* In the machine's namespaces: mount everything, and leave the host's root behind. */
void view_enter(struct plan plan, int has_userns);

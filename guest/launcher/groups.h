#pragma once

#include "plan.h"

/* Makes the control groups of the plan with their limits, and joins those of version 1: this process, alone and without
 * threads, writes itself to `tasks`. To move another process would take a lock that, on a host at rest, waits for a
 * grace period of the kernel, which takes longer than all the rest of a launch. */
void groups_join(struct plan plan);

/* The group of version 2 that a child is to be born in, or -1. */
int groups_of_child(void);

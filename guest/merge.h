/* An exec request laid over process 0: what it leaves out is as the workload has it. */
#ifndef MERGE_H
#define MERGE_H

#include "spec.h"

bool merge_request(struct command *command, struct cursor *request, const struct command *under);

#endif

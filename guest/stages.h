/* When the parts of a start were done, in ns since the kernel began: what a boot's time is made of. */
#ifndef STAGES_H
#define STAGES_H

#include <stddef.h>
#include <stdint.h>

enum stage { PILOT_BEGUN, DEVICES_THERE, STREAMS_OPEN, SPEC_TAKEN, ROOT_MOUNTED, NETWORK_UP, EXECUTED_ALL, STAGES };

void stage_reached(enum stage stage); /* the first time counts */

/* Around what the kernel does for us with modules, disks, mounts and the network, and around waiting: what is left is
 * our own share. */
void stage_pause(void);
void stage_go_on(void);
void stages_record(void (*record)(const uint64_t *stages, size_t count)); /* and last, our own share */

#endif

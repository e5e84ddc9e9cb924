/* The start of a machine with a kernel of its own, up to where a pilot elsewhere begins: mounts, modules, disks, and the
 * ways in. PROTOCOL.md has what the kernel's command line says. */
#ifndef BOOT_H
#define BOOT_H

#include "place.h"

void boot(struct place *journal, struct place segments[2]);
void boot_streams(void); /* open them as they appear */
void boot_watch(void);

#endif

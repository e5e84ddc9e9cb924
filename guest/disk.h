/* The machine's disks by the names that the host gave them. */
#ifndef DISK_H
#define DISK_H

#include <stddef.h>

enum { DISKS_MAX = 64, DISK_NAME = 24, DISK_PATH = 24 };

void disks_find(const char *names); /* "ledger,image,...": vda, vdb, ... unless a serial number says otherwise */
const char *disk_path(const char *name); /* NULL: there is none of that name */

#endif

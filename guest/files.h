/* Files of the run spec, written as root inside the machine or the container, where links of a hostile image lead
 * nowhere else. */
#ifndef FILES_H
#define FILES_H

#include "failure.h"
#include "spec.h"

int files_write(const struct files *files, struct failure *why);
int make_directories(const char *path); /* as mkdir -p, mode 755; -1 with errno */

#endif

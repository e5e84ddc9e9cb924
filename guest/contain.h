/* What process 1 of a machine with its own namespaces does before anything runs: hostname, and mounts that nobody
 * made yet (a container engine makes them; a microVM's kernel does not). */
#ifndef CONTAIN_H
#define CONTAIN_H

void contain(const char *hostname);
void mount_missing(void);

#endif

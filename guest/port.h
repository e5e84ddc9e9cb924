/* Virtio serial ports: descriptors that stay, on which one connection follows another.
 *
 * A port whose host end nobody holds is "hung up" for poll, for as long as it is so; such ports are left alone until
 * something happens to them. What is queued is bounded: a host that does not read is not waited for. */
#ifndef PORT_H
#define PORT_H

#include <stddef.h>

enum { PORTS_MAX = 31 };

void ports_add(int fd);
size_t ports_find(void); /* open those named hawker.N that are not open yet; how many are open */
void ports_tick(void);
void ports_watch(void);

#endif

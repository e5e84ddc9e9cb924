/* Virtio serial ports: descriptors that stay, on which one connection follows another.
 *
 * A port whose host end nobody holds is "hung up" for poll, for as long as it is so; such ports are left alone until
 * something happens to them. What is queued is bounded: a host that does not read is not waited for. */
#ifndef PORT_H
#define PORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PORTS_MAX = 31 };

struct port;

void ports_add(int fd);
size_t ports_find(void); /* open those named hawker.N that are not open yet; how many are open */
void ports_tick(void);
void ports_watch(void);

/* For the connection on a port. */
size_t port_write(struct port *port, const uint8_t *bytes, size_t length); /* how many were taken; 0: it is full */
bool port_waits(const struct port *port);                                  /* the host has not taken all yet */
int port_fd(const struct port *port);
void port_leave(struct port *port); /* the connection has ended */

#endif

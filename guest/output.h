/* What the workload wrote: two segments used as a ring. PROTOCOL.md has the layout.
 *
 * Never waits for a reader and never fails the workload: when a segment is full the other one is emptied and taken;
 * when the disk is full, output is dropped. */
#ifndef OUTPUT_H
#define OUTPUT_H

#include <stddef.h>
#include <stdint.h>

#include "place.h"

enum { OUTPUT_CHUNK = 16384 };

void output_open(const struct place segments[2]);
void output_set_limit(uint32_t bytes); /* of one segment */
void output_add(uint8_t stream, uint8_t process, const void *bytes, size_t length);
uint64_t output_position(void); /* of the next record */
void output_write(void); /* what was added so far is the host's when this returns */

#endif

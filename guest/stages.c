#include "stages.h"

#include <time.h>

static uint64_t reached[STAGES + 1]; /* and last, our own share */
static uint64_t theirs, since;

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void stage_reached(enum stage stage) {
    if (!reached[stage]) reached[stage] = now_ns();
}

void stage_pause(void) { since = now_ns(); }
void stage_go_on(void) { theirs += now_ns() - since; }

void stages_record(void (*record)(const uint64_t *stages, size_t count)) {
    reached[STAGES] = now_ns() - reached[PILOT_BEGUN] - theirs;
    record(reached, STAGES + 1);
}

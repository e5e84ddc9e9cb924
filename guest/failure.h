/* Why something could not be run: an exit code as shells and container engines use them, and a line for a person. */
#ifndef FAILURE_H
#define FAILURE_H

#include <stdint.h>

struct failure {
    uint8_t code; /* 127: not found; 126: found, and cannot be run */
    char text[255];
};

enum { CANNOT_RUN = 126, NOT_FOUND = 127 };

/* Fills `why` with "what object: error of errno, in lower case" and returns -1. */
int fail(struct failure *why, int error, const char *what, const char *object);
int fail_with(struct failure *why, uint8_t code, const char *text, const char *object, const char *rest);

#endif

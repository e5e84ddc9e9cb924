#include "failure.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int fail_with(struct failure *why, uint8_t code, const char *text, const char *object, const char *rest) {
    why->code = code;
    snprintf(why->text, sizeof why->text, "%s %.160s%s", text, object, rest);
    return -1;
}

int fail(struct failure *why, int error, const char *what, const char *object) {
    char rest[80];
    snprintf(rest, sizeof rest, ": %s", strerror(error));
    if (rest[2] >= 'A' && rest[2] <= 'Z') rest[2] = (char)(rest[2] - 'A' + 'a');
    return fail_with(why, error == ENOENT || error == ENOTDIR ? NOT_FOUND : CANNOT_RUN, what, object, rest);
}

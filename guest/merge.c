#include "merge.h"

#include <stdlib.h>
#include <string.h>

static bool names_same(const char *one, const char *other) {
    size_t length = strcspn(one, "=");
    return strncmp(one, other, length + 1) == 0;
}

static bool has(char **env, size_t count, const char *entry) {
    for (size_t i = 0; i < count; i++)
        if (names_same(env[i], entry)) return true;
    return false;
}

static size_t length_of(char **list) {
    size_t count = 0;
    while (list[count]) count++;
    return count;
}

static bool merge_env(struct command *command, char **under) {
    size_t over = length_of(command->env), count = over;
    char **env = realloc(command->env, (over + length_of(under) + 1) * sizeof *env);
    if (!env) return false;
    for (; *under; under++)
        if (!has(env, over, *under)) env[count++] = *under;
    env[count] = NULL;
    command->env = env;
    return true;
}

/* The request is a command and u8 flags: 1 when its user counts, 2 when its cwd does, 4 when a u8 follows: the process
 * that it is laid over. */
bool merge_request(struct command *command, struct cursor *request, const struct spec *spec) {
    bool good = command_parse(command, request);
    uint64_t given = take_number(request, 1);
    size_t process = given & 4 ? (size_t)take_number(request, 1) : 0;
    if (!good || request->failed || !command->env || process >= spec->command_count) return false;
    const struct command *under = &spec->commands[process];
    command->name = under->name;
    command->root = under->root;
    command->mark = under->mark;
    if (!(given & 1)) command->user = under->user;
    if (!(given & 2)) command->cwd = under->cwd;
    return merge_env(command, under->env);
}

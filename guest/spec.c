#include "spec.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

bool command_parse(struct command *command, struct cursor *cursor) {
    size_t words, names;
    command->argv = take_list(cursor, WORDS_MAX, &words);
    command->env = take_list(cursor, WORDS_MAX, &names);
    command->user = take_string(cursor);
    command->cwd = take_string(cursor);
    uint64_t flags = take_number(cursor, 1);
    command->tty = flags & 1;
    command->interactive = flags & 2;
    command->rows = (uint16_t)take_number(cursor, 2);
    command->cols = (uint16_t)take_number(cursor, 2);
    command->name = command->root = "";
    command->mark = 0;
    command->held = false;
    command->copy = COPY_NONE;
    command->files = (struct files){0};
    return !cursor->failed && words > 0;
}

void command_free(struct command *command) {
    free(command->argv);
    free(command->env);
    free(command->files.list);
    command->argv = command->env = NULL;
    command->files = (struct files){0};
}

static void parse_files(struct files *files, struct cursor *cursor) {
    files->count = (size_t)take_number(cursor, 4);
    if (files->count > FILES_MAX) cursor->failed = true;
    if (cursor->failed) files->count = 0;
    files->list = calloc(files->count + 1, sizeof *files->list);
    if (!files->list) cursor->failed = true;
    for (size_t i = 0; i < files->count && !cursor->failed; i++) {
        struct file *file = &files->list[i];
        file->path = take_string(cursor);
        file->mode = (uint32_t)take_number(cursor, 4) & 07777;
        file->content = take_bytes(cursor, &file->length);
        if (file->path[0] != '/') cursor->failed = true;
    }
}

static void parse_commands(struct spec *spec, struct cursor *cursor) {
    spec->command_count = (size_t)take_number(cursor, 4);
    if (spec->command_count < 1 || spec->command_count > PROCESSES_MAX) cursor->failed = true;
    if (cursor->failed) spec->command_count = 0;
    spec->commands = calloc(spec->command_count + 1, sizeof *spec->commands);
    if (!spec->commands) cursor->failed = true;
    for (size_t i = 0; i < spec->command_count && !cursor->failed; i++)
        if (!command_parse(&spec->commands[i], cursor)) cursor->failed = true;
}

/* Version 2: when the machine ends, and what of its processes are containers. */
static void parse_containers(struct spec *spec, struct cursor *cursor) {
    spec->told = take_number(cursor, 1) & 1;
    for (size_t i = 0; i < spec->command_count && !cursor->failed; i++) {
        struct command *command = &spec->commands[i];
        command->name = take_string(cursor);
        command->root = take_string(cursor);
        command->mark = command->root[0] ? (unsigned)i + 1 : 0;
        command->held = take_number(cursor, 1) & 1;
        parse_files(&command->files, cursor);
        if (command->root[0] ? command->root[0] != '/' || !spec->contained : command->files.count > 0) cursor->failed = true;
    }
}

/* --- version 3 ------------------------------------------------------------------------------------------------ */

static void parse_volumes(struct outfit *outfit, struct cursor *cursor) {
    outfit->volume_count = (size_t)take_number(cursor, 4);
    if (outfit->volume_count > VOLUMES_MAX) cursor->failed = true;
    if (cursor->failed) outfit->volume_count = 0;
    outfit->volumes = calloc(outfit->volume_count + 1, sizeof *outfit->volumes);
    if (!outfit->volumes) cursor->failed = true;
    for (size_t i = 0; i < outfit->volume_count && !cursor->failed; i++) {
        struct volume *volume = &outfit->volumes[i];
        volume->disk = take_string(cursor);
        volume->fstype = take_string(cursor);
        volume->target = take_string(cursor);
        volume->read_only = take_number(cursor, 1) & 1;
        if (volume->target[0] != '/') cursor->failed = true;
    }
}

static void parse_link(struct link *link, struct cursor *cursor) {
    size_t count;
    link->name = take_string(cursor);
    for (size_t i = 0; i < HARDWARE_ADDRESS; i++) link->hardware[i] = (uint8_t)take_number(cursor, 1);
    link->mtu = (uint16_t)take_number(cursor, 2);
    link->addresses = take_list(cursor, ADDRESSES_MAX, &count);
    link->gateways = take_list(cursor, ADDRESSES_MAX, &count);
}

static void parse_outfit(struct outfit *outfit, struct cursor *cursor) {
    size_t count;
    outfit->given = true;
    outfit->clock_ns = take_number(cursor, 8);
    outfit->image = take_string(cursor);
    outfit->layer = take_string(cursor);
    parse_volumes(outfit, cursor);
    outfit->swap = take_string(cursor);
    outfit->settings = take_list(cursor, SETTINGS_MAX, &count);
    uint64_t links = take_number(cursor, 1);
    if (links > 1) cursor->failed = true;
    if (links == 1) parse_link(&outfit->link, cursor);
}

bool spec_parse(struct spec *spec, const uint8_t *bytes, size_t length) {
    struct cursor cursor = {.at = bytes, .end = bytes + length};
    memset(spec, 0, sizeof *spec);
    spec->instance = take_string(&cursor);
    spec->hostname = take_string(&cursor);
    uint64_t flags = take_number(&cursor, 1);
    spec->contained = flags & 1;
    spec->stop_signal = (uint8_t)take_number(&cursor, 1);
    spec->stop_timeout_ms = (uint32_t)take_number(&cursor, 4);
    spec->output_limit = (uint32_t)take_number(&cursor, 4);
    parse_files(&spec->files, &cursor);
    parse_commands(spec, &cursor);
    if (flags & 2) parse_containers(spec, &cursor);
    if (flags & 4) parse_outfit(&spec->outfit, &cursor);
    bool good = !cursor.failed && cursor.at == cursor.end && strlen(spec->instance) <= 64 && spec->instance[0] &&
                spec->stop_signal > 0 && spec->stop_signal < NSIG;
    if (!good) spec_free(spec);
    return good;
}

void spec_free(struct spec *spec) {
    for (size_t i = 0; spec->commands && i < spec->command_count; i++) command_free(&spec->commands[i]);
    free(spec->commands);
    free(spec->files.list);
    free(spec->outfit.volumes);
    free(spec->outfit.settings);
    free(spec->outfit.link.addresses);
    free(spec->outfit.link.gateways);
    memset(spec, 0, sizeof *spec);
}

/* --- an exec request laid over a process of the machine -------------------------------------------------------- */

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
 * that it is laid over; 8 when a u8 follows: which copy it is. */
bool command_merge(struct command *command, struct cursor *request, const struct spec *spec) {
    bool good = command_parse(command, request);
    uint64_t given = take_number(request, 1);
    size_t process = given & 4 ? (size_t)take_number(request, 1) : 0;
    uint64_t copy = given & 8 ? take_number(request, 1) : COPY_NONE;
    if (!good || request->failed || !command->env || process >= spec->command_count || copy > COPY_UNPACK) return false;
    command->copy = (enum copy)copy;
    const struct command *under = &spec->commands[process];
    command->name = under->name;
    command->root = under->root;
    command->mark = under->mark;
    if (!(given & 1)) command->user = under->user;
    if (!(given & 2)) command->cwd = under->cwd;
    return merge_env(command, under->env);
}

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
    command->tty = take_number(cursor, 1) & 1;
    command->rows = (uint16_t)take_number(cursor, 2);
    command->cols = (uint16_t)take_number(cursor, 2);
    return !cursor->failed && words > 0;
}

void command_free(struct command *command) {
    free(command->argv);
    free(command->env);
    command->argv = command->env = NULL;
}

static void parse_files(struct spec *spec, struct cursor *cursor) {
    spec->file_count = (size_t)take_number(cursor, 4);
    if (spec->file_count > FILES_MAX) cursor->failed = true;
    if (cursor->failed) spec->file_count = 0;
    spec->files = calloc(spec->file_count + 1, sizeof *spec->files);
    if (!spec->files) cursor->failed = true;
    for (size_t i = 0; i < spec->file_count && !cursor->failed; i++) {
        struct file *file = &spec->files[i];
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

bool spec_parse(struct spec *spec, const uint8_t *bytes, size_t length) {
    struct cursor cursor = {.at = bytes, .end = bytes + length};
    memset(spec, 0, sizeof *spec);
    spec->instance = take_string(&cursor);
    spec->hostname = take_string(&cursor);
    spec->contained = take_number(&cursor, 1) & 1;
    spec->stop_signal = (uint8_t)take_number(&cursor, 1);
    spec->stop_timeout_ms = (uint32_t)take_number(&cursor, 4);
    spec->output_limit = (uint32_t)take_number(&cursor, 4);
    parse_files(spec, &cursor);
    parse_commands(spec, &cursor);
    bool good = !cursor.failed && cursor.at == cursor.end && strlen(spec->instance) <= 64 && spec->instance[0] &&
                spec->stop_signal > 0 && spec->stop_signal < NSIG;
    if (!good) spec_free(spec);
    return good;
}

void spec_free(struct spec *spec) {
    for (size_t i = 0; spec->commands && i < spec->command_count; i++) command_free(&spec->commands[i]);
    free(spec->commands);
    free(spec->files);
    memset(spec, 0, sizeof *spec);
}

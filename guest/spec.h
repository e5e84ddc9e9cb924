/* The run spec: what to run, as the worker sent it. PROTOCOL.md has the layout. */
#ifndef SPEC_H
#define SPEC_H

#include "wire.h"

enum { SPEC_MAX = 4 << 20, PROCESSES_MAX = 32, FILES_MAX = 1024, WORDS_MAX = 8192 };

struct command {
    char **argv;
    char **env; /* "NAME=value" */
    const char *user;
    const char *cwd;
    bool tty;
    uint16_t rows;
    uint16_t cols;
};

struct file {
    const char *path;
    uint32_t mode;
    const uint8_t *content;
    size_t length;
};

struct spec {
    const char *instance;
    const char *hostname;
    bool contained; /* process 1 of namespaces and a root filesystem of our own */
    uint8_t stop_signal;
    uint32_t stop_timeout_ms;
    uint32_t output_limit;
    struct file *files;
    size_t file_count;
    struct command *commands;
    size_t command_count;
};

bool spec_parse(struct spec *spec, const uint8_t *bytes, size_t length); /* keeps pointers into `bytes` */
void spec_free(struct spec *spec);

bool command_parse(struct command *command, struct cursor *cursor);
void command_free(struct command *command);

#endif

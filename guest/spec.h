/* The run spec: what to run, as the worker sent it. PROTOCOL.md has the layout. */
#ifndef SPEC_H
#define SPEC_H

#include "wire.h"

enum {
    SPEC_MAX = 4 << 20,
    PROCESSES_MAX = 32,
    FILES_MAX = 1024,
    WORDS_MAX = 8192,
    VOLUMES_MAX = 32,
    SETTINGS_MAX = 256,
    ADDRESSES_MAX = 64,
    HARDWARE_ADDRESS = 6,
};

/* A copy of files between the machine and its stdin or stdout, instead of a program of the machine's. */
enum copy { COPY_NONE = 0, COPY_PACK = 1, COPY_UNPACK = 2 };

struct file {
    const char *path;
    uint32_t mode;
    const uint8_t *content;
    size_t length;
};

struct files {
    struct file *list;
    size_t count;
};

struct command {
    char **argv;
    char **env; /* "NAME=value" */
    const char *user;
    const char *cwd;
    bool tty;
    bool interactive; /* its input is open: whoever attaches types into it */
    uint16_t rows;
    uint16_t cols;
    const char *name;   /* of the container; "": the machine's own */
    const char *root;   /* its root filesystem, as we see it; "": ours */
    unsigned mark;      /* of a container, by which its processes are known; 0: the machine's own */
    bool held;          /* not started with the machine */
    enum copy copy;     /* of an exec request: which of our own programs it is */
    struct files files; /* in its root, written before each run */
};

struct volume {
    const char *disk;
    const char *fstype;
    const char *target;
    bool read_only;
};

struct link {
    const char *name; /* NULL: there is none */
    uint8_t hardware[HARDWARE_ADDRESS];
    uint16_t mtu;
    char **addresses; /* "fdaa::3/64" */
    char **gateways;
};

/* What a kernel of the machine's own is to be given: version 3. */
struct outfit {
    bool given;
    uint64_t clock_ns;
    const char *image; /* names of disks */
    const char *layer;
    struct volume *volumes;
    size_t volume_count;
    const char *swap; /* "": none */
    char **settings;  /* "net.ipv4.ip_forward=1" */
    struct link link;
};

struct spec {
    const char *instance;
    const char *hostname;
    bool contained; /* process 1 of namespaces and a root filesystem of our own */
    uint8_t stop_signal;
    uint32_t stop_timeout_ms;
    uint32_t output_limit;
    bool told; /* an end of a process is not the machine's */
    struct files files;
    struct command *commands;
    size_t command_count;
    struct outfit outfit;
};

bool spec_parse(struct spec *spec, const uint8_t *bytes, size_t length); /* keeps pointers into `bytes` */
void spec_free(struct spec *spec);

bool command_parse(struct command *command, struct cursor *cursor);
void command_free(struct command *command);

/* An exec request laid over a process of the machine: what it leaves out is as that one has it. False: malformed. */
bool command_merge(struct command *command, struct cursor *request, const struct spec *spec);

#endif

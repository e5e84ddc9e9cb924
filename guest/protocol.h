/* Numbers of the protocol; PROTOCOL.md says what they mean. */
#ifndef PROTOCOL_H
#define PROTOCOL_H

enum { PROTOCOL_MAGIC = 0x504b5748, PROTOCOL_VERSION = 5, FRAME_MAX = 65536, FRAME_HEAD = 9 };

enum frame {
    FRAME_HELLO = 1,
    FRAME_SPEC = 2,
    FRAME_STOP = 3,
    FRAME_SIGNAL = 4,
    FRAME_EXEC = 5,
    FRAME_STDIN = 6,
    FRAME_STDIN_END = 7,
    FRAME_RESIZE = 8,
    FRAME_CREDIT = 9,
    FRAME_CLOSE = 10,
    FRAME_LIST = 11,
    FRAME_WATCH = 12, /* from here to CONCLUDE: version 2 */
    FRAME_RUN = 13,
    FRAME_END = 14,
    FRAME_CONCLUDE = 15,
    FRAME_CLOCK = 16, /* from here to USAGE: version 3 */
    FRAME_FREEZE = 17,
    FRAME_THAW = 18,
    FRAME_GROW = 19,
    FRAME_MEMORY = 20,
    FRAME_USAGE = 21,
    FRAME_ATTACH = 22, /* version 4 */
    FRAME_TRIM = 23,   /* version 5 */
    FRAME_READY = 33,
    FRAME_REFUSED = 34,
    FRAME_EXIT = 35,
    FRAME_STDOUT = 36,
    FRAME_STDERR = 37,
    FRAME_PROCESS = 38,
    FRAME_LIST_END = 39,
    FRAME_STATE = 40,
    FRAME_WATCHING = 41,
    FRAME_DONE = 42,
    FRAME_MEMORY_IS = 43,
    FRAME_USAGE_IS = 44,
    FRAME_ATTACHED = 45,
};

#endif

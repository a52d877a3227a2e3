/* status.h - the one list of operating errors, and the sentence that goes with one.
 *
 * Functions that can fail return 0 or a negative enum status. Those whose failure a person must
 * understand also take a struct error and leave one sentence in it: what, expected, got, and which
 * option changes it. Programmer errors are asserts (check.h), never statuses.
 *
 * Thread: a struct error belongs to its caller; no shared state. */
#ifndef BASE_STATUS_H
#define BASE_STATUS_H

/*        name                   value  text                                            */
#define STATUS_LIST(X)                                                                                       \
    X(STATUS_OK, 0, "ok")                                                                                    \
    X(STATUS_NO_MEMORY, -1, "out of memory")                                                                 \
    X(STATUS_IO, -2, "input or output failed")                                                               \
    X(STATUS_INVALID, -3, "invalid input")                                                                   \
    X(STATUS_UNSUPPORTED, -4, "not supported")                                                               \
    X(STATUS_NOT_FOUND, -5, "not found")                                                                     \
    X(STATUS_LIMIT, -6, "a limit was exceeded")                                                              \
    X(STATUS_NO_BLOCKS, -7, "no free K/V blocks")                                                            \
    X(STATUS_NO_SLOT, -8, "no free request slot")                                                            \
    X(STATUS_DEVICE, -9, "the device failed")                                                                \
    X(STATUS_TEMPLATE, -10, "the chat template refused the messages")

enum status {
#define X(name, value, text) name = value,
    STATUS_LIST(X)
#undef X
};

#define must_check __attribute__((warn_unused_result))

struct error {
    int status;     /* the enum status last set, 0 if none */
    char text[512]; /* one sentence, NUL-terminated; empty if none */
};

/* The fixed text of a status; "unknown status" for a number that is not in the list. */
const char *status_text(int status);

/* Records status and the formatted sentence in err (which may be NULL) and returns status, so that
 * a failing path reads `return error_set(err, STATUS_INVALID, "...", ...)`. Truncates at 511 bytes
 * on a UTF-8 boundary. */
int error_set(struct error *err, int status, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif

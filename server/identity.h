/* identity.h - what the bytes of an answer depend on beside its request: the build, the model's files, the device's
 * kernels, and the options that change a number or a word. Two processes with the same identity answer the same request
 * with the same bytes, so that one may go on where the other stopped. Thread: any. */
#ifndef SERVER_IDENTITY_H
#define SERVER_IDENTITY_H

#include <stdbool.h>

#include "base/digest.h"
#include "config/config.h"
#include "link/facts.h"

enum { IDENTITY_BYTES = 32 };

/* Of the files as they are now, that is before they are read: one that is replaced meanwhile is another one. */
struct identity_files {
    uint8_t digest[IDENTITY_BYTES];
    uint8_t engines
        [IDENTITY_BYTES]; /* of those that the engine reads: the model's file or all of its parts, or a folder's weights and JSON */
    int64_t num_bytes; /* of the model: of its file or parts, or of all in its folder */
};

void identity_look_at_files(const struct config *config, struct identity_files *out);
/* Whether another engine would read the files that the one before it has read. Where there are none it finds that out itself,
 * and says what is missing. */
bool identity_engine_may_go_on(const struct config *config, const struct identity_files *before);
/* Which files an adapter is, by their names, sizes and times, as they are now. One that is not there, or cannot be read, is none. */
struct digest_text identity_of_adapter(const char *path);
/* adapters: of all that are there. */
void identity_make(const struct config *config, const struct identity_files *files,
                   const struct link_facts *facts, const char *model_name, const struct digest_text *adapters,
                   uint8_t out[IDENTITY_BYTES]);

#endif

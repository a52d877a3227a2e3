/* chunk_gate.h - the strict reading of a chunked body's framing, done before llhttp sees the same bytes.
 *
 *   *( 1*16HEXDIG *extension CRLF  data CRLF )  1*16"0" *extension CRLF  *( trailer CRLF )  CRLF
 *   extension = BWS ";" BWS token [ BWS "=" BWS ( token / quoted-string ) ]
 *
 * Extensions and trailers are checked, counted and dropped. Constant memory. Thread: any. */
#ifndef SERVER_CHUNK_GATE_H
#define SERVER_CHUNK_GATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "server/refusal.h"

enum {
    CHUNKS_MAX = 65536,
    CHUNK_OVERHEAD_BYTES = 100 * 1024, /* framing may be this much more than the data it frames */
    CHUNK_TRAILER_BYTES = 4096,
};

/* All zero at the start of a body. */
struct chunk_gate {
    int16_t state, num_digits;
    bool dropped; /* what the last call has read was of an extension or a trailer */
    bool done;
    uint64_t chunk_bytes; /* announced; then what is left of it */
    uint64_t num_chunks, data_bytes, framing_bytes, trailer_bytes;
};

/* Reads up to n bytes; stops behind the body's last byte (done), and where an extension or a
 * trailer begins or ends.
 * Returns how many bytes belong to the body, or -1 when refused. */
int64_t chunk_gate_feed(struct chunk_gate *g, const char *bytes, size_t n, uint64_t max_body_bytes,
                        struct refusal *why) must_check;

#endif

/* output.h - bytes on their way to one client.
 *
 * A send is tried at once; what the socket does not take is kept: one buffer is with libuv, one collects what
 * comes meanwhile. Nothing is allocated while the client keeps up. Who may send how much is the caller's
 * business (output_unsent_bytes). Thread: the loop's. */
#ifndef SERVER_OUTPUT_H
#define SERVER_OUTPUT_H

#include <uv.h>

#include "base/buffer.h"

struct output {
    uv_stream_t *stream;
    uv_write_t write;
    bool writing;
    struct buffer sending, queued;
    uint64_t num_given;                                  /* bytes of all sends */
    void (*on_written)(struct output *o, int uv_status); /* a kept buffer was written, or the socket failed */
};

void output_init(struct output *o, uv_stream_t *stream, void (*on_written)(struct output *o, int uv_status));
void output_deinit(struct output *o); /* after the stream was closed */

enum { OUTPUT_PARTS_MAX = 4 };

/* Sends num_parts (at most OUTPUT_PARTS_MAX) pieces as one write where possible. Returns a libuv error, or 0.
 */
int output_send(struct output *o, const uv_buf_t *parts, int num_parts);

/* Likewise of a head and a body, whose memory is taken over where it must be kept. Else it is the caller's still. */
int output_send_whole(struct output *o, uv_buf_t head, struct buffer *body);

/* Bytes that the socket has not taken yet. */
size_t output_unsent_bytes(const struct output *o);
/* Memory that they take. */
size_t output_held_bytes(const struct output *o);
/* Bytes that it has taken since the beginning: the client reads as long as this grows. */
uint64_t output_taken_bytes(const struct output *o);

#endif

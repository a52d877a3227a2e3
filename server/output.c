#include "server/output.h"

#include "base/check.h"
#include "server/loop_watch.h"

enum { KEPT_BYTES_MAX = 1 << 30 };

void output_init(struct output *o, uv_stream_t *stream, void (*on_written)(struct output *o, int uv_status))
{
    *o = (struct output){.stream = stream, .on_written = on_written};
    buffer_init(&o->sending, KEPT_BYTES_MAX);
    buffer_init(&o->queued, KEPT_BYTES_MAX);
}

void output_deinit(struct output *o)
{
    assert_always(!o->writing);
    buffer_deinit(&o->sending);
    buffer_deinit(&o->queued);
}

size_t output_unsent_bytes(const struct output *o)
{
    return (o->writing ? uv_stream_get_write_queue_size(o->stream) : 0) + o->queued.num_bytes;
}

size_t output_held_bytes(const struct output *o)
{
    return o->sending.capacity_bytes + o->queued.capacity_bytes;
}

uint64_t output_taken_bytes(const struct output *o)
{
    return o->num_given - output_unsent_bytes(o);
}

static int write_queued(struct output *o);

static void on_write_end(uv_write_t *write, int uv_status)
{
    loop_watch_enter("a write that ended");
    struct output *o = write->data;
    o->writing = false;
    buffer_deinit(&o->sending);
    if (uv_status == 0 && o->queued.num_bytes > 0) uv_status = write_queued(o);
    o->on_written(o, uv_status);
}

/* What is to be sent, but for its first skip bytes. */
static int write_sending(struct output *o, size_t skip)
{
    uv_buf_t part = uv_buf_init(o->sending.data + skip, (unsigned)(o->sending.num_bytes - skip));
    o->write.data = o;
    int status = uv_write(&o->write, o->stream, &part, 1, on_write_end);
    o->writing = status == 0;
    return status;
}

static int write_queued(struct output *o)
{
    struct buffer empty = o->sending;
    o->sending = o->queued;
    o->queued = empty;
    return write_sending(o, 0);
}

/* Keeps the parts without their first skip bytes. */
static int keep(struct output *o, const uv_buf_t *parts, int num_parts, size_t skip)
{
    for (int i = 0; i < num_parts; i++) {
        size_t part_skip = min_of(skip, parts[i].len);
        buffer_append(&o->queued, parts[i].base + part_skip, parts[i].len - part_skip);
        skip -= part_skip;
    }
    return buffer_failed(&o->queued) ? UV_ENOMEM : 0;
}

/* What the socket takes at once, or an error. */
static int try_write(struct output *o, const uv_buf_t *parts, int num_parts, size_t *total)
{
    *total = 0;
    for (int i = 0; i < num_parts; i++) *total += parts[i].len;
    o->num_given += *total;
    int taken = o->writing ? 0 : uv_try_write(o->stream, parts, (unsigned)num_parts);
    return taken == UV_EAGAIN ? 0 : taken;
}

static int keep_and_write(struct output *o, const uv_buf_t *parts, int num_parts, size_t skip)
{
    int status = keep(o, parts, num_parts, skip);
    return status || o->writing ? status : write_queued(o);
}

int output_send(struct output *o, const uv_buf_t *parts, int num_parts)
{
    size_t total;
    assert_always(num_parts <= OUTPUT_PARTS_MAX);
    int taken = try_write(o, parts, num_parts, &total);
    if (taken < 0 || (size_t)taken == total) return min_of(taken, 0);
    return keep_and_write(o, parts, num_parts, (size_t)taken);
}

int output_send_whole(struct output *o, uv_buf_t head, struct buffer *body)
{
    const uv_buf_t parts[] = {head, uv_buf_init(body->data, (unsigned)body->num_bytes)};
    size_t total;
    int taken = try_write(o, parts, array_length(parts), &total);
    if (taken < 0 || (size_t)taken == total) return min_of(taken, 0);
    if (o->writing || o->queued.num_bytes > 0 || (size_t)taken < head.len)
        return keep_and_write(o, parts, array_length(parts), (size_t)taken);
    buffer_fit(body);
    buffer_deinit(&o->sending);
    o->sending = *body;
    o->sending.max_bytes = KEPT_BYTES_MAX;
    buffer_init(body, body->max_bytes);
    return write_sending(o, (size_t)taken - head.len);
}

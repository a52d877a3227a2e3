#include "server/chunk_gate.h"

#include "base/check.h"
#include "server/gate.h"

enum chunk_state {
    CHUNK_SIZE,
    CHUNK_EXTENSION,
    CHUNK_SIZE_LF,
    CHUNK_DATA,
    CHUNK_DATA_CR,
    CHUNK_DATA_LF,
    TRAILER_BEGIN,
    TRAILER_NAME,
    TRAILER_VALUE,
    TRAILER_LF,
    LAST_LF,
};

enum { SIZE_DIGITS_MAX = 8 };

static int malformed(struct refusal *why)
{
    return refuse(why, 400, "the chunked body is malformed");
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

static int check_size(struct chunk_gate *g, uint64_t max_body_bytes, struct refusal *why)
{
    if (g->num_digits == 0) return malformed(why);
    if (g->chunk_bytes > max_body_bytes - g->data_bytes)
        return refuse(why, 413, "the body is longer than %llu bytes (--max-body-bytes)",
                      (unsigned long long)max_body_bytes);
    if (++g->num_chunks > CHUNKS_MAX) return refuse(why, 413, "the body has more than %d chunks", CHUNKS_MAX);
    return 0;
}

static int feed_size(struct chunk_gate *g, char c, uint64_t max_body_bytes, struct refusal *why)
{
    int digit = hex_value(c);
    if (digit >= 0) {
        if (++g->num_digits > SIZE_DIGITS_MAX) return malformed(why);
        g->chunk_bytes = g->chunk_bytes * 16 + (uint64_t)digit;
        return 0;
    }
    if (check_size(g, max_body_bytes, why)) return -1;
    if (c == '\r')
        g->state = CHUNK_SIZE_LF;
    else if (c == ';')
        g->state = CHUNK_EXTENSION;
    else
        return malformed(why);
    return 0;
}

static bool is_text(char c)
{
    unsigned char u = (unsigned char)c;
    return u == '\t' || (u >= ' ' && u != 0x7f);
}

/* One byte of a line that is dropped: an extension or a trailer's value. */
static int feed_dropped(struct chunk_gate *g, char c, enum chunk_state at_cr, struct refusal *why)
{
    if (c == '\r') {
        g->state = at_cr;
        return 0;
    }
    return is_text(c) ? 0 : malformed(why);
}

static int expect_lf(struct chunk_gate *g, char c, enum chunk_state next, struct refusal *why)
{
    if (c != '\n') return malformed(why);
    g->state = next;
    return 0;
}

static int feed_trailer_begin(struct chunk_gate *g, char c, struct refusal *why)
{
    if (c == '\r') {
        g->state = LAST_LF;
        return 0;
    }
    g->state = TRAILER_NAME;
    return gate_is_token_char((unsigned char)c) ? 0 : malformed(why);
}

static int feed_trailer_name(struct chunk_gate *g, char c, struct refusal *why)
{
    if (c == ':') {
        g->state = TRAILER_VALUE;
        return 0;
    }
    return gate_is_token_char((unsigned char)c) ? 0 : malformed(why);
}

static int feed_framing(struct chunk_gate *g, char c, uint64_t max_body_bytes, struct refusal *why)
{
    switch ((enum chunk_state)g->state) {
    case CHUNK_SIZE:
        return feed_size(g, c, max_body_bytes, why);
    case CHUNK_EXTENSION:
        return feed_dropped(g, c, CHUNK_SIZE_LF, why);
    case CHUNK_SIZE_LF:
        return expect_lf(g, c, g->chunk_bytes > 0 ? CHUNK_DATA : TRAILER_BEGIN, why);
    case CHUNK_DATA_CR:
        g->state = CHUNK_DATA_LF;
        return c == '\r' ? 0 : malformed(why);
    case CHUNK_DATA_LF:
        g->num_digits = 0;
        return expect_lf(g, c, CHUNK_SIZE, why);
    case TRAILER_BEGIN:
        return feed_trailer_begin(g, c, why);
    case TRAILER_NAME:
        return feed_trailer_name(g, c, why);
    case TRAILER_VALUE:
        return feed_dropped(g, c, TRAILER_LF, why);
    case TRAILER_LF:
        return expect_lf(g, c, TRAILER_BEGIN, why);
    case LAST_LF:
        g->done = true;
        return expect_lf(g, c, LAST_LF, why);
    case CHUNK_DATA:
        break;
    }
    return malformed(why);
}

static int count_framing(struct chunk_gate *g, struct refusal *why)
{
    if (g->state >= TRAILER_BEGIN && ++g->trailer_bytes > CHUNK_TRAILER_BYTES)
        return refuse(why, 431, "the trailers are longer than %d bytes", CHUNK_TRAILER_BYTES);
    if (++g->framing_bytes > CHUNK_OVERHEAD_BYTES + g->data_bytes)
        return refuse(why, 413, "the chunked body has too much framing for its data");
    return 0;
}

int64_t chunk_gate_feed(struct chunk_gate *g, const char *bytes, size_t n, uint64_t max_body_bytes,
                        struct refusal *why)
{
    size_t i = 0;
    while (i < n && !g->done) {
        if (g->state == CHUNK_DATA) {
            uint64_t take = min_of(g->chunk_bytes, (uint64_t)(n - i));
            g->chunk_bytes -= take;
            g->data_bytes += take;
            i += take;
            if (g->chunk_bytes == 0) g->state = CHUNK_DATA_CR;
        } else {
            if (count_framing(g, why) || feed_framing(g, bytes[i], max_body_bytes, why)) return -1;
            i++;
        }
    }
    return (int64_t)i;
}

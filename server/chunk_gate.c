#include "server/chunk_gate.h"

#include "base/check.h"
#include "server/gate.h"

enum chunk_state {
    CHUNK_SIZE,
    EXTENSION_GAP, /* blanks before a semicolon */
    EXTENSION_NAME_BEGIN,
    EXTENSION_NAME,
    EXTENSION_NAME_GAP,
    EXTENSION_VALUE_BEGIN,
    EXTENSION_VALUE,
    EXTENSION_QUOTED,
    EXTENSION_QUOTED_PAIR,
    EXTENSION_QUOTED_END,
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

enum { SIZE_DIGITS_MAX = 16 };

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

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static bool is_text(char c)
{
    unsigned char u = (unsigned char)c;
    return u == '\t' || (u >= ' ' && u != 0x7f);
}

static int go_to(struct chunk_gate *g, enum chunk_state state, bool allowed, struct refusal *why)
{
    g->state = state;
    return allowed ? 0 : malformed(why);
}

/* Behind a size, a name or a value: the end of the line, or an extension. */
static int next_extension(struct chunk_gate *g, char c, struct refusal *why)
{
    if (c == '\r') return go_to(g, CHUNK_SIZE_LF, true, why);
    if (is_blank(c)) return go_to(g, EXTENSION_GAP, true, why);
    return go_to(g, EXTENSION_NAME_BEGIN, c == ';', why);
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
    return next_extension(g, c, why);
}

/* What may follow a character of an extension, by the state that it led to. */
static int feed_extension(struct chunk_gate *g, char c, struct refusal *why)
{
    bool blank = is_blank(c), token = gate_is_token_char((unsigned char)c);
    switch ((enum chunk_state)g->state) {
    case EXTENSION_NAME_BEGIN:
        return blank ? 0 : go_to(g, EXTENSION_NAME, token, why);
    case EXTENSION_NAME:
        if (token) return 0;
        if (blank) return go_to(g, EXTENSION_NAME_GAP, true, why);
        return c == '=' ? go_to(g, EXTENSION_VALUE_BEGIN, true, why) : next_extension(g, c, why);
    case EXTENSION_NAME_GAP:
        if (blank) return 0;
        return c == '=' ? go_to(g, EXTENSION_VALUE_BEGIN, true, why)
                        : go_to(g, EXTENSION_NAME_BEGIN, c == ';', why);
    case EXTENSION_VALUE_BEGIN:
        if (blank) return 0;
        return c == '"' ? go_to(g, EXTENSION_QUOTED, true, why) : go_to(g, EXTENSION_VALUE, token, why);
    case EXTENSION_VALUE:
        return token ? 0 : next_extension(g, c, why);
    case EXTENSION_QUOTED:
        if (c == '"') return go_to(g, EXTENSION_QUOTED_END, true, why);
        return c == '\\' ? go_to(g, EXTENSION_QUOTED_PAIR, true, why)
                         : go_to(g, EXTENSION_QUOTED, is_text(c), why);
    case EXTENSION_QUOTED_PAIR:
        return go_to(g, EXTENSION_QUOTED, is_text(c), why);
    case EXTENSION_GAP:
        return blank ? 0 : go_to(g, EXTENSION_NAME_BEGIN, c == ';', why);
    default:
        return next_extension(g, c, why);
    }
}

static int feed_trailer_value(struct chunk_gate *g, char c, struct refusal *why)
{
    return c == '\r' ? go_to(g, TRAILER_LF, true, why) : go_to(g, TRAILER_VALUE, is_text(c), why);
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
        return feed_trailer_value(g, c, why);
    case TRAILER_LF:
        return expect_lf(g, c, TRAILER_BEGIN, why);
    case LAST_LF:
        g->done = true;
        return expect_lf(g, c, LAST_LF, why);
    default:
        return feed_extension(g, c, why);
    }
}

static int count_framing(struct chunk_gate *g, struct refusal *why)
{
    if (g->state >= TRAILER_BEGIN && ++g->trailer_bytes > CHUNK_TRAILER_BYTES)
        return refuse(why, 431, "the trailers are longer than %d bytes", CHUNK_TRAILER_BYTES);
    if (++g->framing_bytes > CHUNK_OVERHEAD_BYTES + g->data_bytes)
        return refuse(why, 413, "the chunked body has too much framing for its data");
    return 0;
}

static bool is_dropped(const struct chunk_gate *g, char c)
{
    if (g->state == CHUNK_SIZE) return c == ';' || is_blank(c);
    if (g->state == TRAILER_BEGIN) return c != '\r';
    if (g->state >= TRAILER_NAME && g->state <= TRAILER_LF) return true;
    return g->state >= EXTENSION_GAP && g->state <= EXTENSION_QUOTED_END && c != '\r';
}

int64_t chunk_gate_feed(struct chunk_gate *g, const char *bytes, size_t n, uint64_t max_body_bytes,
                        struct refusal *why)
{
    size_t i = 0;
    while (i < n && !g->done) {
        bool dropped = is_dropped(g, bytes[i]);
        if (i > 0 && dropped != g->dropped) break;
        g->dropped = dropped;
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

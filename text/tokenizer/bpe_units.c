#include "text/tokenizer/bpe_units.h"

#include "base/utf8.h"

struct unit_cursor unit_cursor_start(const struct bpe *b, const struct vocab *v, const char *piece,
                                     size_t num_bytes)
{
    const unsigned char *text = (const unsigned char *)piece;
    return (struct unit_cursor){.b = b, .v = v, .at = text, .end = text + num_bytes};
}

struct unit_list {
    int32_t *ids;
    int32_t num_ids;
};

static void add_pending(struct unit_cursor *c, struct unit_list *units)
{
    if (c->unknown_pending) units->ids[units->num_ids++] = c->b->unknown_id;
    c->unknown_pending = false;
}

static void add_unit(struct unit_cursor *c, struct unit_list *units, int32_t id)
{
    add_pending(c, units);
    units->ids[units->num_ids++] = id;
}

static void add_unknown(struct unit_cursor *c, struct unit_list *units)
{
    if (c->b->unknown_id < 0) return;
    if (!c->b->fuse_unknown) add_pending(c, units);
    c->unknown_pending = true;
}

/* A pending unknown token stays behind these bytes, as in the reference; that matters only to a vocabulary
 * that has some of the byte tokens but not all. */
static bool add_fallback_bytes(const struct unit_cursor *c, struct unit_list *units, int num_bytes)
{
    const int32_t *byte_ids = c->b->byte_ids;
    for (int i = 0; i < num_bytes; i++) {
        if (byte_ids[c->at[i]] < 0) return false;
    }
    for (int i = 0; i < num_bytes; i++) units->ids[units->num_ids++] = byte_ids[c->at[i]];
    return true;
}

static void add_byte(struct unit_cursor *c, struct unit_list *units)
{
    int32_t id = c->b->byte_ids[*c->at];
    if (id >= 0)
        add_unit(c, units, id);
    else
        add_unknown(c, units);
}

static void add_code_point(struct unit_cursor *c, struct unit_list *units, int num_bytes)
{
    int32_t id = *c->at < 128 ? c->b->ascii_ids[*c->at]
                              : vocab_find_plain(c->v, (const char *)c->at, (size_t)num_bytes);
    if (id >= 0)
        add_unit(c, units, id);
    else if (!c->b->byte_fallback || !add_fallback_bytes(c, units, num_bytes))
        add_unknown(c, units);
}

int32_t unit_cursor_fill(struct unit_cursor *c, int32_t *ids, int32_t room)
{
    struct unit_list units = {.ids = ids};
    while (c->at < c->end && units.num_ids + UNITS_AT_ONCE_MAX <= room) {
        int num_bytes = 1;
        if (c->b->byte_level) {
            add_byte(c, &units);
        } else {
            utf8_decode(c->at, c->end, &num_bytes);
            add_code_point(c, &units, num_bytes);
        }
        c->at += num_bytes;
    }
    if (c->at == c->end && units.num_ids < room) add_pending(c, &units);
    return units.num_ids;
}

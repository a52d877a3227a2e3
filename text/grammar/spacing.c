#include "text/grammar/spacing.h"

#include "base/check.h"
#include "text/grammar/spaces.h"

enum { FIRST_WIDTH = 2, WIDTH_MAX = 16, DEPTH_MAX = 1000 };

void spacing_init(struct spacing *s)
{
    *s = (struct spacing){
        .habits[BEHIND_COMMA].num_spaces = 1, .habits[BEHIND_COLON].num_spaces = 1, .width = FIRST_WIDTH};
}

static bool opens(uint8_t byte)
{
    return byte == '{' || byte == '[';
}

static bool closes(uint8_t byte)
{
    return byte == '}' || byte == ']';
}

/* Between two bytes that are no white space; SPACE_PLACES: none is expected there. */
static enum space_place place_of(uint8_t last, uint8_t next)
{
    if (opens(last)) return closes(next) ? SPACE_PLACES : BEHIND_OPENING;
    if (closes(next)) return BEFORE_CLOSING;
    return last == ',' ? BEHIND_COMMA : last == ':' ? BEHIND_COLON : SPACE_PLACES;
}

static int32_t depth_at(const struct spacing *s, enum space_place place)
{
    return s->depth - (place == BEFORE_CLOSING);
}

static void learn(struct spacing *s, enum space_place place)
{
    if (place == SPACE_PLACES) return;
    s->habits[place] = (struct space_habit){s->broken, s->num_spaces};
    if (s->broken && depth_at(s, place) > 0)
        s->width = min_of(s->num_spaces / depth_at(s, place), (int32_t)WIDTH_MAX);
}

static void take_space(struct spacing *s, uint8_t byte)
{
    s->broken = s->broken || byte == '\n';
    s->num_spaces = byte == '\n' ? 0 : s->num_spaces + 1;
}

static void take_other(struct spacing *s, uint8_t byte)
{
    learn(s, place_of(s->last, byte));
    s->depth = max_of(min_of(s->depth + opens(byte) - closes(byte), (int32_t)DEPTH_MAX), 0);
    s->in_string = byte == '"';
    s->last = byte;
    s->broken = false;
    s->num_spaces = 0;
}

static void take_in_string(struct spacing *s, uint8_t byte)
{
    s->in_string = s->is_escaped || byte != '"';
    s->is_escaped = !s->is_escaped && byte == '\\';
}

void spacing_take(struct spacing *s, const char *bytes, size_t num_bytes)
{
    for (size_t i = 0; i < num_bytes; i++) {
        uint8_t byte = (uint8_t)bytes[i];
        if (s->in_string)
            take_in_string(s, byte);
        else if (is_space(byte))
            take_space(s, byte);
        else
            take_other(s, byte);
    }
}

uint8_t spacing_next(const struct spacing *s, uint8_t next)
{
    enum space_place place = place_of(s->last, next);
    if (s->in_string || place == SPACE_PLACES) return 0;
    const struct space_habit *habit = &s->habits[place];
    if (habit->breaks && !s->broken) return s->num_spaces == 0 ? '\n' : 0;
    int32_t num_spaces = s->broken ? s->width * depth_at(s, place) : habit->num_spaces;
    return s->num_spaces < num_spaces ? ' ' : 0;
}

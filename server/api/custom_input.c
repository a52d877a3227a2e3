#include "server/api/custom_input.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

enum { UNIT_BYTES = sizeof "\\u0000" - 1 };

static const char before_text[] = "{\"input\":\"";

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

/* What was matched is not what stands before a text. */
static void give_up(struct custom_input *in, struct buffer *out)
{
    buffer_append(out, before_text, in->num_matched);
    in->state = INPUT_OTHER;
}

static bool may_have_space(size_t num_matched)
{
    return num_matched <= 1 || num_matched + 2 >= sizeof before_text - 1;
}

static size_t take_beginning(struct custom_input *in, const char *bytes, size_t n, struct buffer *out)
{
    size_t i = 0;
    for (; i < n && in->num_matched < sizeof before_text - 1; i++) {
        if (bytes[i] == before_text[in->num_matched]) {
            in->num_matched++;
        } else if (!is_space(bytes[i]) || !may_have_space(in->num_matched)) {
            give_up(in, out);
            return i;
        }
    }
    if (in->num_matched == sizeof before_text - 1) in->state = INPUT_TEXT;
    return i;
}

static uint32_t read_hex(const char *digits)
{
    char text[5] = {digits[0], digits[1], digits[2], digits[3], '\0'};
    return (uint32_t)strtoul(text, NULL, 16);
}

static bool is_half(uint32_t unit, uint32_t first)
{
    return unit >= first && unit < first + 0x400;
}

static void append_point(struct buffer *out, uint32_t point)
{
    unsigned char bytes[4];
    buffer_append(out, (const char *)bytes, (size_t)utf8_encode(point, bytes));
}

/* Whether c goes on with the escape that is held, or with the pair whose first half is. */
static bool may_hold(const struct custom_input *in, char c)
{
    static const char pair[] = "\\u0000\\u0000";
    if (in->num_held == 1) return true;
    const char expected = pair[in->num_held];
    return expected == '0' ? isxdigit((unsigned char)c) != 0 : c == expected;
}

/* Of what is held and goes on otherwise: a half alone is no character, and what is no escape stays as it is. */
static void let_go(struct custom_input *in, struct buffer *out)
{
    const bool is_half_alone = in->num_held >= UNIT_BYTES;
    const size_t n = is_half_alone ? UNIT_BYTES : in->num_held;
    if (is_half_alone)
        append_point(out, 0xFFFD);
    else
        buffer_append(out, in->held, n);
    in->num_held -= n;
    memmove(in->held, in->held + n, in->num_held);
}

/* What is held when it is whole. */
static void read_unit(struct custom_input *in, struct buffer *out)
{
    const uint32_t unit = read_hex(in->held + 2);
    if (is_half(unit, 0xD800)) return;
    append_point(out, is_half(unit, 0xDC00) ? 0xFFFD : unit);
    in->num_held = 0;
}

static void read_pair(struct custom_input *in, struct buffer *out)
{
    const uint32_t high = read_hex(in->held + 2), low = read_hex(in->held + UNIT_BYTES + 2);
    if (is_half(low, 0xDC00)) {
        append_point(out, 0x10000 + ((high & 0x3FF) << 10) + (low & 0x3FF));
        in->num_held = 0;
    } else {
        let_go(in, out);
        read_unit(in, out);
    }
}

static void read_letter(struct custom_input *in, struct buffer *out)
{
    static const char names[] = "nrtbf", values[] = "\n\r\t\b\f";
    const char c = in->held[1], *known = c ? strchr(names, c) : NULL;
    buffer_append_char(out, known ? values[known - names] : c);
    in->num_held = 0;
}

static void hold(struct custom_input *in, char c, struct buffer *out)
{
    in->held[in->num_held++] = c;
    if (in->num_held == 2 && c != 'u') read_letter(in, out);
    if (in->num_held == UNIT_BYTES) read_unit(in, out);
    if (in->num_held == 2 * UNIT_BYTES) read_pair(in, out);
}

static size_t take_text(struct custom_input *in, const char *bytes, size_t n, struct buffer *out)
{
    for (size_t i = 0; i < n; i++) {
        while (in->num_held > 0 && !may_hold(in, bytes[i])) let_go(in, out);
        if (in->num_held > 0 || bytes[i] == '\\') {
            hold(in, bytes[i], out);
        } else if (bytes[i] == '"') {
            in->state = INPUT_ENDED;
            return i + 1;
        } else {
            buffer_append_char(out, bytes[i]);
        }
    }
    return n;
}

void custom_input_take(struct custom_input *in, const char *bytes, size_t num_bytes, struct buffer *out)
{
    size_t at = 0;
    if (in->state == INPUT_BEGINS) at = take_beginning(in, bytes, num_bytes, out);
    if (in->state == INPUT_TEXT) at += take_text(in, bytes + at, num_bytes - at, out);
    if (in->state == INPUT_OTHER) buffer_append(out, bytes + at, num_bytes - at);
}

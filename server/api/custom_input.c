#include "server/api/custom_input.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

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

/* The held escape when it is whole: appends what it says. Halves of a pair stand together. */
static bool read_escape(const struct custom_input *in, struct buffer *out)
{
    static const char names[] = "nrtbf", values[] = "\n\r\t\b\f";
    const char *known, *h = in->held;
    unsigned char bytes[4];
    if (in->num_held < 2) return false;
    if (h[1] != 'u') {
        known = h[1] ? strchr(names, h[1]) : NULL;
        buffer_append_char(out, known ? values[known - names] : h[1]);
        return true;
    }
    if (in->num_held < 6) return false;
    uint32_t point = read_hex(h + 2);
    if (point >= 0xD800 && point < 0xDC00) {
        if (in->num_held < 12) return false;
        point = 0x10000 + ((point & 0x3FF) << 10) + (read_hex(h + 8) & 0x3FF);
    }
    buffer_append(out, (const char *)bytes, (size_t)utf8_encode(point, bytes));
    return true;
}

static size_t take_text(struct custom_input *in, const char *bytes, size_t n, struct buffer *out)
{
    for (size_t i = 0; i < n; i++) {
        if (in->num_held > 0) {
            in->held[in->num_held++] = bytes[i];
            if (read_escape(in, out)) in->num_held = 0;
        } else if (bytes[i] == '\\') {
            in->held[in->num_held++] = bytes[i];
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

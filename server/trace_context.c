#include "server/trace_context.h"

#include <stdio.h>
#include <string.h>

enum { TRACE_BYTES = 16, SPAN_BYTES = 8 };

/* n small digits, not all of them 0. */
static bool is_id(const char *text, size_t n)
{
    return strspn(text, "0123456789abcdef") >= n && strspn(text, "0") < n;
}

static int value_of(char digit)
{
    return digit <= '9' ? digit - '0' : digit - 'a' + 10;
}

/* 00-TRACE-SPAN-FLAGS; later versions may have more behind it. */
static bool is_valid(const char *header)
{
    size_t n = strlen(header);
    if (n < 55 || strspn(header, "0123456789abcdef") != 2 || !strncmp(header, "ff", 2)) return false;
    if (header[2] != '-' || header[35] != '-' || header[52] != '-') return false;
    if (!is_id(header + 3, 32) || !is_id(header + 36, 16)) return false;
    if (strspn(header + 53, "0123456789abcdef") < 2) return false;
    return n == 55 || (strncmp(header, "00", 2) != 0 && header[55] == '-');
}

static void write_hex(char *text, const uint8_t *bytes, int n)
{
    for (int i = 0; i < n; i++) snprintf(text + 2 * i, 3, "%02x", bytes[i]);
}

bool trace_context_read(const char *header, const uint8_t random[24], struct trace_context *out)
{
    bool taken = header && is_valid(header);
    *out = (struct trace_context){.sampled = true};
    write_hex(out->trace_id, random, TRACE_BYTES);
    write_hex(out->span_id, random + TRACE_BYTES, SPAN_BYTES);
    if (!taken) return false;
    memcpy(out->trace_id, header + 3, 32);
    memcpy(out->parent_id, header + 36, 16);
    out->sampled = value_of(header[54]) & 1;
    return true;
}

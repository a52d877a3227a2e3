#include "text/json_pointer.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <string.h>

enum { INDEX_MAX = 1 << 16 };

static int hex(char digit)
{
    if (digit >= '0' && digit <= '9') return digit - '0';
    if ((digit | 32) >= 'a' && (digit | 32) <= 'f') return (digit | 32) - 'a' + 10;
    return -1;
}

/* The next byte of a token, percent signs decoded; -1: its end. */
static int next_unit(const char **at)
{
    const char *p = *at;
    if (*p == '\0' || *p == '/') return -1;
    bool is_escape = *p == '%' && hex(p[1]) >= 0 && hex(p[2]) >= 0;
    *at += is_escape ? 3 : 1;
    return is_escape ? hex(p[1]) * 16 + hex(p[2]) : (unsigned char)*p;
}

static int next_byte(const char **at)
{
    int byte = next_unit(at);
    const char *behind = *at;
    if (byte != '~') return byte;
    int second = next_unit(&behind);
    if (second != '0' && second != '1') return byte;
    *at = behind;
    return second == '0' ? '~' : '/';
}

static bool is_token(const char *token, const char *name)
{
    int byte;
    while ((byte = next_byte(&token)) >= 0)
        if (*name == '\0' || (unsigned char)*name++ != byte) return false;
    return *name == '\0';
}

static const cJSON *find_member(const cJSON *object, const char *token, size_t *num_seen)
{
    const cJSON *member;
    cJSON_ArrayForEach(member, object)
    {
        ++*num_seen;
        if (member->string && is_token(token, member->string)) return member;
    }
    return NULL;
}

static const cJSON *find_item(const cJSON *array, const char *token, size_t *num_seen)
{
    int index = 0, byte;
    while (index < INDEX_MAX && (byte = next_byte(&token)) >= 0)
        index = byte >= '0' && byte <= '9' ? index * 10 + byte - '0' : INDEX_MAX;
    *num_seen += (size_t)index;
    return cJSON_GetArrayItem(array, index);
}

const cJSON *json_pointer_follow(const cJSON *node, const char *pointer, size_t *num_seen)
{
    size_t nobody_asks = 0;
    if (!num_seen) num_seen = &nobody_asks;
    while (node && *pointer == '/') {
        const char *token = ++pointer;
        node = cJSON_IsArray(node) ? find_item(node, token, num_seen) : find_member(node, token, num_seen);
        pointer += strcspn(pointer, "/");
    }
    return *pointer == '\0' ? node : NULL;
}

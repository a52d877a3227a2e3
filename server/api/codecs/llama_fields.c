/* llama_fields.c - members of an answer by their paths. What is read was written by this server: it is JSON without
 * white space between its tokens, and its names have no escapes. */
#include <string.h>

#include "server/api/codecs/llama.h"

/* Behind the value that begins here. */
static const char *skip_value(const char *at)
{
    int depth = 0;
    bool in_text = false;
    for (; *at; at++) {
        if (in_text && *at == '\\') {
            at++; /* and what is escaped */
        } else if (in_text) {
            in_text = *at != '"';
        } else if (*at == '"') {
            in_text = true;
        } else if (*at == '{' || *at == '[') {
            depth++;
        } else if (depth == 0 && strchr(",}]", *at)) {
            return at;
        } else if (*at == '}' || *at == ']') {
            depth--;
        }
    }
    return at;
}

/* Where the member's value begins; NULL: there is none, or object is no object. */
static const char *find_member(const char *object, const char *name, size_t n)
{
    if (*object != '{') return NULL;
    for (const char *at = object + 1; *at == '"'; at += *at == ',') {
        const char *name_end = strchr(at + 1, '"');
        if (!name_end) return NULL;
        const char *value = name_end + 2;
        if ((size_t)(name_end - at - 1) == n && !memcmp(at + 1, name, n)) return value;
        at = skip_value(value);
    }
    return NULL;
}

static const char *find_path(const char *object, const char *path)
{
    while (object) {
        size_t n = strcspn(path, "/");
        object = find_member(object, path, n);
        if (!path[n]) return object;
        path += n + 1;
    }
    return NULL;
}

void llama_pick_fields(struct buffer *out, const char *object, const struct llama_kept *kept)
{
    bool is_first = true;
    buffer_append_char(out, '{');
    for (int i = 0; i < kept->num_response_fields; i++) {
        const char *path = kept->response_fields[i], *value = find_path(object, path);
        if (!value) continue;
        if (!is_first) buffer_append_char(out, ',');
        is_first = false;
        buffer_append_json_text(out, path);
        buffer_append_char(out, ':');
        buffer_append(out, value, (size_t)(skip_value(value) - value));
    }
    buffer_append_char(out, '}');
}

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

struct member {
    const char *name, *value; /* name: n bytes, without an end */
    size_t n;
};

/* The member at *at, which moves to the one behind it. False: there is none. */
static bool next_member(const char **at, struct member *m)
{
    const char *name_end = **at == '"' ? strchr(*at + 1, '"') : NULL;
    if (!name_end) return false;
    *m = (struct member){*at + 1, name_end + 2, (size_t)(name_end - *at - 1)};
    *at = skip_value(m->value);
    *at += **at == ',';
    return true;
}

/* Where the value begins that the path leads to; NULL: there is none, or object is no object. */
static const char *find_path(const char *object, const char *path)
{
    size_t n = strcspn(path, "/");
    struct member m;
    if (*object != '{') return NULL;
    for (const char *at = object + 1; next_member(&at, &m);)
        if (m.n == n && !memcmp(m.name, path, n)) return path[n] ? find_path(m.value, path + n + 1) : m.value;
    return NULL;
}

/* Of all paths in one walk over the answer, which may be megabytes. */
static void find_paths(const char *object, const struct llama_kept *kept,
                       const char *values[RESPONSE_FIELDS_MAX])
{
    struct member m;
    for (const char *at = object + 1; next_member(&at, &m);)
        for (int i = 0; i < kept->num_response_fields; i++) {
            const char *path = kept->response_fields[i];
            if (strcspn(path, "/") != m.n || memcmp(m.name, path, m.n) != 0) continue;
            values[i] = path[m.n] ? find_path(m.value, path + m.n + 1) : m.value;
        }
}

void llama_pick_fields(struct buffer *out, const char *object, const struct llama_kept *kept)
{
    const char *values[RESPONSE_FIELDS_MAX] = {NULL};
    bool is_first = true;
    find_paths(object, kept, values);
    buffer_append_char(out, '{');
    for (int i = 0; i < kept->num_response_fields; i++) {
        const char *path = kept->response_fields[i], *value = values[i];
        if (!value) continue;
        if (!is_first) buffer_append_char(out, ',');
        is_first = false;
        buffer_append_json_text(out, path);
        buffer_append_char(out, ':');
        buffer_append(out, value, (size_t)(skip_value(value) - value));
    }
    buffer_append_char(out, '}');
}

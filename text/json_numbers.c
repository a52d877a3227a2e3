#include "text/json_numbers.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include <cjson/cJSON.h>

enum { SHORT_INTEGER_DIGITS = 15 };

struct number_reader {
    const char *text;
    size_t num_bytes, at;
    bool failed;
};

static bool is_number_byte(char c)
{
    return (c >= '0' && c <= '9') || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E';
}

/* The next number outside of strings: its length, and where it starts in *begin; 0 at the end. */
static size_t next_number(struct number_reader *in, size_t *begin)
{
    bool in_string = false;
    for (; in->at < in->num_bytes; in->at++) {
        char c = in->text[in->at];
        if (c == '"') in_string = !in_string;
        if (in_string && c == '\\') in->at++;
        if (in_string || (c != '-' && (c < '0' || c > '9'))) continue;
        *begin = in->at;
        while (in->at < in->num_bytes && is_number_byte(in->text[in->at])) in->at++;
        return in->at - *begin;
    }
    return 0;
}

static bool is_short_integer(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '.' || text[i] == 'e' || text[i] == 'E') return false;
    }
    return n <= SHORT_INTEGER_DIGITS;
}

static void keep_number(struct number_reader *in, cJSON *item)
{
    size_t begin = 0, n = next_number(in, &begin);
    if (n == 0) in->failed = true;
    if (n == 0 || is_short_integer(in->text + begin, n) || item->valuestring) return;
    item->valuestring = cJSON_malloc(n + 1);
    if (!item->valuestring) {
        in->failed = true;
        return;
    }
    memcpy(item->valuestring, in->text + begin, n);
    item->valuestring[n] = '\0';
}

/* Numbers of the tree come in the order of the text. cJSON bounds the nesting (CJSON_NESTING_LIMIT). */
static void keep_numbers(struct number_reader *in, cJSON *item)
{
    if (cJSON_IsNumber(item)) keep_number(in, item);
    for (cJSON *child = item->child; child && !in->failed; child = child->next) keep_numbers(in, child);
}

int json_keep_numbers(struct cJSON *tree, const char *text, size_t num_bytes)
{
    struct number_reader in = {.text = text, .num_bytes = num_bytes};
    if (tree) keep_numbers(&in, tree);
    return in.failed ? STATUS_NO_MEMORY : 0;
}

const char *json_long_integer(const struct cJSON *item)
{
    static const double exact_max = 9007199254740992.0; /* 2^53 */
    const char *text = cJSON_IsNumber(item) ? item->valuestring : NULL;
    if (!text || strpbrk(text, ".eE") || !isfinite(item->valuedouble)) return NULL;
    return fabs(item->valuedouble) >= exact_max ? text : NULL;
}

static bool has_long_integer(const cJSON *item)
{
    if (json_long_integer(item)) return true;
    for (const cJSON *child = item->child; child; child = child->next)
        if (has_long_integer(child)) return true;
    return false;
}

/* cJSON prints a raw item's valuestring as it is. */
static void make_raw(cJSON *item)
{
    if (json_long_integer(item)) item->type = cJSON_Raw;
    for (cJSON *child = item->child; child; child = child->next) make_raw(child);
}

char *json_print_exactly(const struct cJSON *tree)
{
    if (!has_long_integer(tree)) return cJSON_PrintUnformatted(tree);
    cJSON *copy = cJSON_Duplicate(tree, true);
    if (copy) make_raw(copy);
    char *text = copy ? cJSON_PrintUnformatted(copy) : NULL;
    cJSON_Delete(copy);
    return text;
}

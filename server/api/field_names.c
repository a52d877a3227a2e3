#include "server/api/field_names.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "config/closest.h"

enum { NAME_BYTES_MAX = 40, LETTERS_MIN = 4, COMPARED_NAMES_MAX = 32 };

/* Fields of OpenAI's, vLLM's and llama.cpp's that say nothing about the text of an answer. */
static const char *const harmless[] = {
    "user",
    "metadata",
    "store",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "web_search_options",
    "moderation",
    "function_call",
    "parallel_tool_calls",
    "session_id",
    "cache_prompt",
    "id_slot",
    "truncation",
    "client_metadata",
    "keep_alive",
    "content",
    "tokens",
    "return_token_strs",
    "include_obfuscation",
    "return_progress",
    "return_tokens",
    "response_fields",
    "mirostat_tau",
    "mirostat_eta",
    "dry_base",
    "dry_allowed_length",
    "dry_penalty_last_n",
    "dry_sequence_breakers",
    "xtc_threshold",
    "dynatemp_exponent",
    "n_keep",
    "n_discard",
    "min_keep",
    "sse_ping_interval",
    "mm_processor_kwargs",
    "media_io_kwargs",
};

static bool is_among(const char *name, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!strcmp(name, names[i])) return true;
    return false;
}

/* Letters, digits and underscores: what may stand in a header. */
static bool is_plain(const char *name)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
    return name[strspn(name, plain)] == '\0';
}

static void add_name(struct ignored_fields *out, const char *name)
{
    size_t n = strlen(out->names);
    if (n + NAME_BYTES_MAX + 2 > sizeof out->names) return;
    snprintf(out->names + n, sizeof out->names - n, "%s%.*s", n > 0 ? "," : "", (int)NAME_BYTES_MAX, name);
}

static void compare(struct ignored_fields *out, const char *name, const char *const *known, size_t num_known)
{
    size_t n = strlen(name);
    if (out->misspelt[0] || n < LETTERS_MIN || n > NAME_BYTES_MAX || !is_plain(name)) return;
    const char *meant = closest_word(name, n, known, num_known);
    if (meant) snprintf(out->misspelt, sizeof out->misspelt, "%s is no field; did you mean %s?", name, meant);
}

void field_names_find_ignored(const cJSON *body, const char *const *known, size_t num_read, size_t num_known,
                              struct ignored_fields *out)
{
    const cJSON *item;
    int num_compared = 0; /* with every field's name: so many take their time */
    *out = (struct ignored_fields){.names = ""};
    cJSON_ArrayForEach(item, body)
    {
        if (!item->string || cJSON_IsNull(item) || is_among(item->string, known, num_read)) continue;
        add_name(out, item->string);
        if (!is_among(item->string, harmless, array_length(harmless)) &&
            !is_among(item->string, known + num_read, num_known - num_read) &&
            num_compared++ < COMPARED_NAMES_MAX)
            compare(out, item->string, known, num_read);
    }
}

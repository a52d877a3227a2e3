/* messages_documents.c - documents and search results in Anthropic's Messages, as text with its title before it. What is not
 * text (a PDF, a picture, an address) nobody here reads. */
#include "server/api/codecs/messages.h"

#include <string.h>

#include "server/api/json_field.h"

enum { DOCUMENT_BYTES_MAX = 256 << 20 };

static int refuse_source(const struct place *p)
{
    return api_error_invalid(p->t->err, "unsupported_value", p->path,
                             "%s.source must be text: {\"type\": \"text\", \"media_type\": \"text/plain\", "
                             "\"data\": ...} or {\"type\": \"content\", \"content\": ...} with blocks of "
                             "text; this model reads nothing else",
                             p->path);
}

static void append_member(struct buffer *out, const cJSON *block, const char *name)
{
    const char *text = canonical_text(block, name);
    if (text && *text) buffer_printf(out, "<%s>%s</%s>\n", name, text, name);
}

/* A string, or blocks of text. False: neither. */
static bool append_content(struct buffer *out, const cJSON *content)
{
    const cJSON *block;
    if (cJSON_IsString(content)) {
        buffer_append_text(out, content->valuestring);
        return true;
    }
    if (!cJSON_IsArray(content)) return false;
    cJSON_ArrayForEach(block, content)
    {
        const char *text = canonical_is(block, "text") ? canonical_text(block, "text") : NULL;
        if (!text) return false;
        if (block != content->child) buffer_append_char(out, '\n');
        buffer_append_text(out, text);
    }
    return true;
}

static bool append_document(struct buffer *out, const cJSON *block)
{
    const cJSON *source = json_field_find(block, "source");
    append_member(out, block, "title");
    append_member(out, block, "context");
    if (canonical_is(source, "content")) return append_content(out, json_field_find(source, "content"));
    const char *data = canonical_is(source, "text") ? canonical_text(source, "data") : NULL;
    if (data) buffer_append_text(out, data);
    return data != NULL;
}

static bool append_search_result(struct buffer *out, const cJSON *block)
{
    append_member(out, block, "title");
    append_member(out, block, "source");
    return append_content(out, json_field_find(block, "content"));
}

bool messages_is_document(const cJSON *block)
{
    return canonical_is(block, "document") || canonical_is(block, "search_result");
}

int messages_add_document(const struct place *p, cJSON *parts, const cJSON *block, bool is_tools)
{
    const char *mark = canonical_text(block, "type");
    bool is_result = !strcmp(mark, "search_result");
    struct buffer text;
    int status;
    buffer_init(&text, DOCUMENT_BYTES_MAX);
    buffer_printf(&text, "<%s>\n", mark);
    bool is_text = is_result ? append_search_result(&text, block) : append_document(&text, block);
    buffer_printf(&text, "\n</%s>", mark);
    if (!is_text && is_tools)
        status = canonical_add_unseen(p, parts, mark);
    else if (!is_text && is_result)
        status = api_error_invalid(p->t->err, "invalid_value", p->path,
                                   "%s.content must be an array of text blocks", p->path);
    else if (!is_text)
        status = refuse_source(p);
    else
        status =
            buffer_failed(&text) ? api_error_no_memory(p->t->err) : canonical_add_part(p, parts, text.data);
    buffer_deinit(&text);
    return status;
}

#include "text/model_text.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/log.h"
#include "files/file_map.h"
#include "files/gguf.h"
#include "files/json_read.h"

enum {
    PATH_BYTES_MAX = 4096,
    TEMPLATE_BYTES_MAX = 4 << 20,
    TEMPLATE_FILE_BYTES_MAX = 1 << 20, /* an operator's */
    JSON_FILE_BYTES_MAX = 64 << 20,
};

/* ---- the template's source ---- */

static char *copy_text(const char *text, size_t num_bytes)
{
    char *copy = malloc(num_bytes + 1);
    if (!copy) return NULL;
    memcpy(copy, text, num_bytes);
    copy[num_bytes] = '\0';
    return copy;
}

/* Of a file's chat_template: a text, or a list of {name, template} of which the one called default counts. */
static const char *template_in(const cJSON *config)
{
    const cJSON *field = cJSON_GetObjectItemCaseSensitive(config, "chat_template"), *entry;
    if (cJSON_IsString(field)) return field->valuestring;
    cJSON_ArrayForEach(entry, field)
    {
        const char *name = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(entry, "name"));
        if (name && !strcmp(name, "default"))
            return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(entry, "template"));
    }
    return NULL;
}

static int read_json_template(const char *path, const char *name, char **out, struct error *err)
{
    char file[PATH_BYTES_MAX];
    cJSON *config = NULL;
    snprintf(file, sizeof file, "%s/%s", path, name);
    int status = json_file_read(file, JSON_FILE_BYTES_MAX, &config, err);
    if (status == STATUS_NOT_FOUND) return STATUS_OK;
    if (status) return status;
    const char *text = template_in(config);
    if (text && !(*out = copy_text(text, strlen(text))))
        status = error_set(err, STATUS_NO_MEMORY, "%s: no memory", file);
    cJSON_Delete(config);
    return status;
}

int template_source_of_directory(const char *path, char **out, struct error *err)
{
    char file[PATH_BYTES_MAX];
    size_t num_bytes;
    *out = NULL;
    snprintf(file, sizeof file, "%s/chat_template.jinja", path);
    int status = file_read_text(file, TEMPLATE_BYTES_MAX, out, &num_bytes, err);
    if (status != STATUS_NOT_FOUND) return status;
    status = read_json_template(path, "tokenizer_config.json", out, err);
    if (status || *out) return status;
    return read_json_template(path, "chat_template.json", out, err);
}

int template_source_of_gguf(const struct gguf *gguf, const char *path, char **out, struct error *err)
{
    const char *text;
    size_t num_bytes;
    *out = NULL;
    if (!gguf_find_text(gguf, "tokenizer.chat_template", &text, &num_bytes)) return STATUS_OK;
    if (num_bytes > TEMPLATE_BYTES_MAX)
        return error_set(err, STATUS_LIMIT, "%s: a chat template of %zu bytes", path, num_bytes);
    *out = copy_text(text, num_bytes);
    return *out ? STATUS_OK : error_set(err, STATUS_NO_MEMORY, "%s: no memory", path);
}

static int read_template_file(const char *path, char **text, struct error *err)
{
    size_t n;
    struct error why = {0};
    int status = file_read_text(path, TEMPLATE_FILE_BYTES_MAX, text, &n, &why);
    /* Not STATUS_NOT_FOUND: that is a model without a tokenizer. */
    if (status)
        return error_set(err, status == STATUS_NO_MEMORY ? status : STATUS_IO, "--chat-template %s",
                         why.text);
    if (n > 0 && strlen(*text) == n) return STATUS_OK;
    free(*text);
    *text = NULL;
    return error_set(err, STATUS_INVALID, "--chat-template %s: %s", path,
                     n > 0 ? "not a text" : "it is empty");
}

/* ---- opening ---- */

static int parse_given_template(const char *template_path, struct model_text *t, struct error *err)
{
    char *source = NULL;
    int status = read_template_file(template_path, &source, err);
    if (status) return status;
    status = chat_template_parse(source, &t->chat_template, err);
    free(source);
    return status;
}

static int parse_own_template(const char *path, struct model_text *t, struct error *err)
{
    char *source = NULL;
    int status = t->gguf ? template_source_of_gguf(t->gguf, path, &source, err)
                         : template_source_of_directory(path, &source, err);
    if (status || !source) return status;
    struct error why = {0};
    if (chat_template_parse(source, &t->chat_template, &why)) {
        t->chat_template = NULL;
        log_warning("the model's chat template cannot be used, chat completions are off: %s", why.text);
    }
    free(source);
    return STATUS_OK;
}

static bool add_token(cJSON *variables, const char *name, const struct tokenizer *t, int32_t id)
{
    size_t n = 0;
    const char *bytes = id >= 0 ? tokenizer_token_bytes(t, id, &n) : "";
    char *text = copy_text(bytes, n);
    bool added = text && cJSON_AddStringToObject(variables, name, text);
    free(text);
    return added;
}

int model_text_derive_tools(struct model_text *t, struct error *err)
{
    if (!t->chat_template || !t->tokenizer) return STATUS_OK;
    cJSON *variables = cJSON_CreateObject();
    bool added = add_token(variables, "bos_token", t->tokenizer, tokenizer_bos_id(t->tokenizer)) &&
                 add_token(variables, "eos_token", t->tokenizer, tokenizer_eos_id(t->tokenizer));
    int status = added ? tool_format_derive(t->chat_template, variables, &t->tool_format, err)
                       : error_set(err, STATUS_NO_MEMORY, "no memory for the chat template's variables");
    cJSON_Delete(variables);
    return status;
}

static int open_all(const char *path, const char *template_path, struct model_text *t, struct error *err)
{
    struct stat st;
    if (stat(path, &st)) return error_set(err, STATUS_IO, "%s: %s", path, strerror(errno));
    int status = S_ISDIR(st.st_mode) ? STATUS_OK : gguf_open(path, &t->gguf, err);
    if (!status)
        status =
            template_path ? parse_given_template(template_path, t, err) : parse_own_template(path, t, err);
    if (status) return status;
    return t->gguf ? tokenizer_open_gguf(t->gguf, &t->tokenizer, err)
                   : tokenizer_open_directory(path, &t->tokenizer, err);
}

int model_text_open(const char *path, const char *template_path, struct model_text *out, struct error *err)
{
    *out = (struct model_text){0};
    int status = open_all(path, template_path, out, err);
    if (!status) status = model_text_derive_tools(out, err);
    if (status && status != STATUS_NOT_FOUND) model_text_close(out);
    return status;
}

void model_text_close(struct model_text *t)
{
    tool_format_free(t->tool_format);
    if (t->chat_template) chat_template_free(t->chat_template);
    if (t->tokenizer) tokenizer_close(t->tokenizer);
    gguf_close(t->gguf);
    *t = (struct model_text){0};
}

#include "server/api/prediction.h"

#include <stdio.h>
#include <string.h>

#include "base/buffer.h"
#include "server/api/json_field.h"
#include "server/api/nul_text.h"

static int check_type(const cJSON *object, const char *path, const char *wanted, struct api_error *err)
{
    const cJSON *type = json_field_find(object, "type");
    if (!cJSON_IsString(type)) return json_field_refuse_type(type, path, "a string", err);
    if (!strcmp(type->valuestring, wanted)) return 0;
    return api_error_invalid(err, "unsupported_value", path, "%s must be \"%s\"; got \"%.40s\"", path, wanted,
                             type->valuestring);
}

static int append_part(const cJSON *part, int idx, struct buffer *text, struct api_error *err)
{
    char path[48];
    int n = snprintf(path, sizeof path, "prediction.content[%d]", idx);
    if (!cJSON_IsObject(part)) return json_field_refuse_type(part, path, "an object", err);
    snprintf(path + n, sizeof path - (size_t)n, ".type");
    int status = check_type(part, path, "text", err);
    if (status < 0) return status;
    const cJSON *piece = json_field_find(part, "text");
    snprintf(path + n, sizeof path - (size_t)n, ".text");
    if (!cJSON_IsString(piece)) return json_field_refuse_type(piece, path, "a string", err);
    buffer_append_text(text, piece->valuestring);
    return 0;
}

static int read_content(const cJSON *content, struct buffer *text, struct api_error *err)
{
    const cJSON *part;
    int idx = 0, status = 0;
    if (cJSON_IsString(content)) {
        buffer_append_text(text, content->valuestring);
        return 0;
    }
    if (!cJSON_IsArray(content))
        return json_field_refuse_type(content, "prediction.content", "a string or an array of text parts",
                                      err);
    cJSON_ArrayForEach(part, content)
    {
        if (status < 0) break;
        status = append_part(part, idx++, text, err);
    }
    return status;
}

static int encode(const struct server *server, const struct params *params, struct buffer *text,
                  struct token_list *out, struct api_error *err)
{
    if (buffer_failed(text)) return api_error_no_memory(err);
    if (server->facts->num_guess_tokens == 0 || text->num_bytes == 0) return 0;
    if (params->has_nul) text->num_bytes = nul_text_restore(text->data, text->num_bytes);
    int status = tokenizer_encode(server->tokenizer, text->data, text->num_bytes, NULL, 0, 0,
                                  server->facts->max_model_len, out);
    if (status == 0 || status == STATUS_LIMIT) return 0; /* what is too much cannot come */
    return api_error_set(err, 500, "server_error", NULL, NULL, "tokenising: %s", status_text(status));
}

int prediction_read(const struct server *server, struct params *params, const cJSON *body,
                    struct token_list *out, struct api_error *err)
{
    const cJSON *prediction = json_field_find(body, "prediction");
    struct buffer text;
    if (!prediction) return 0;
    if (!cJSON_IsObject(prediction))
        return json_field_refuse_type(prediction, "prediction", "an object", err);
    int status = check_type(prediction, "prediction.type", "content", err);
    if (status < 0) return status;
    params->predicts = true;
    buffer_init(&text, SIZE_MAX / 2);
    status = read_content(json_field_find(prediction, "content"), &text, err);
    if (status == 0) status = encode(server, params, &text, out, err);
    buffer_deinit(&text);
    return status;
}

#include "server/api/logit_bias.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/api/json_field.h"

enum { BIAS_MAX = 100 };

struct reader {
    const struct server *server;
    struct logit_bias *out;
    int32_t *num_out;
    struct api_error *err;
};

/* Decimal digits without needless zeros, below the width of the logits. */
static bool read_token_key(const char *key, int32_t vocab_size, int32_t *id)
{
    size_t n = strlen(key);
    if (n == 0 || n > 9 || strspn(key, "0123456789") != n || (key[0] == '0' && n > 1)) return false;
    *id = (int32_t)strtol(key, NULL, 10);
    return *id < vocab_size;
}

static int read_bias(struct reader *r, const cJSON *item, const char *path, float *out)
{
    double bias = -BIAS_MAX;
    if (!cJSON_IsFalse(item) && !json_field_number(item, &bias))
        return json_field_refuse_type(item, path, "a number, or false for -100", r->err);
    if (!cJSON_IsFalse(item) && !(fabs(bias) <= BIAS_MAX))
        return api_error_invalid(r->err, "invalid_value", path,
                                 "%s must be a number from -%d to %d; got %.9g", path, BIAS_MAX, BIAS_MAX,
                                 bias);
    *out = (float)bias;
    return 0;
}

/* The place of the first entry whose id is not below this one. */
static int32_t find_place(const struct reader *r, int32_t id)
{
    int32_t begin = 0, end = *r->num_out;
    while (begin < end) {
        int32_t middle = begin + (end - begin) / 2;
        if (r->out[middle].token_id < id)
            begin = middle + 1;
        else
            end = middle;
    }
    return begin;
}

static int put(struct reader *r, int32_t id, float bias)
{
    int32_t at = find_place(r, id);
    if (at < *r->num_out && r->out[at].token_id == id) {
        r->out[at].bias = bias;
        return 0;
    }
    if (*r->num_out == LOGIT_BIAS_MAX)
        return api_error_invalid(r->err, "invalid_value", "logit_bias",
                                 "logit_bias must have at most %d entries", (int)LOGIT_BIAS_MAX);
    memmove(r->out + at + 1, r->out + at, (size_t)(*r->num_out - at) * sizeof *r->out);
    r->out[at] = (struct logit_bias){id, bias};
    ++*r->num_out;
    return 0;
}

static int read_object(struct reader *r, const cJSON *map)
{
    int32_t vocab_size = r->server->facts->vocab_size, id;
    const cJSON *item;
    int status = 0;
    cJSON_ArrayForEach(item, map)
    {
        char path[100];
        float bias = 0;
        if (status < 0) break;
        snprintf(path, sizeof path, "logit_bias.%.64s", item->string);
        if (!read_token_key(item->string, vocab_size, &id))
            return api_error_invalid(r->err, "invalid_value", path,
                                     "a key of logit_bias must be a token id from 0 to %d in decimal",
                                     vocab_size - 1);
        status = read_bias(r, item, path, &bias);
        if (status == 0) status = put(r, id, bias);
    }
    return status;
}

/* Of each token of a text. */
static int put_text(struct reader *r, const char *text, float bias)
{
    struct token_list list = {0};
    int status = tokenizer_encode(r->server->tokenizer, text, strlen(text), NULL, 0, TOKENIZER_PARSE_SPECIAL,
                                  LOGIT_BIAS_MAX, &list);
    if (status == STATUS_LIMIT)
        status = api_error_invalid(r->err, "invalid_value", "logit_bias",
                                   "logit_bias must have at most %d entries", (int)LOGIT_BIAS_MAX);
    else if (status < 0)
        status = api_error_no_memory(r->err);
    for (int32_t i = 0; status == 0 && i < list.num_ids; i++) status = put(r, list.ids[i], bias);
    token_list_deinit(&list);
    return status;
}

static int read_pair(struct reader *r, const cJSON *pair, const char *path)
{
    int64_t id, last = r->server->facts->vocab_size - 1;
    float bias = 0;
    if (!cJSON_IsArray(pair) || cJSON_GetArraySize(pair) != 2)
        return json_field_refuse_type(pair, path, "a pair of a token id or a text and its bias", r->err);
    const cJSON *token = pair->child;
    int status = read_bias(r, token->next, path, &bias);
    if (status < 0) return status;
    if (cJSON_IsString(token)) return put_text(r, token->valuestring, bias);
    if (!cJSON_IsNumber(token) || !json_field_as_int(token, 0, last, &id))
        return api_error_invalid(r->err, "invalid_value", path,
                                 "%s must begin with a token id from 0 to %lld, or with a text", path,
                                 (long long)last);
    return put(r, (int32_t)id, bias);
}

static int read_pairs(struct reader *r, const cJSON *list)
{
    const cJSON *item;
    int i = 0, status = 0;
    cJSON_ArrayForEach(item, list)
    {
        char path[32];
        snprintf(path, sizeof path, "logit_bias[%d]", i++);
        if (status == 0) status = read_pair(r, item, path);
    }
    return status;
}

int logit_bias_read(const struct server *server, const cJSON *body, struct logit_bias *out, int32_t *num_out,
                    struct api_error *err)
{
    struct reader r = {server, out, num_out, err};
    const cJSON *value = json_field_find(body, "logit_bias");
    if (!value) return 0;
    if (cJSON_IsArray(value)) return read_pairs(&r, value);
    if (cJSON_IsObject(value)) return read_object(&r, value);
    return json_field_refuse_type(value, "logit_bias", "an object or an array of pairs", err);
}

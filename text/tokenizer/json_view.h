/* json_view.h - looking into parsed JSON whose shape is not yet known to be right. Thread: any. */
#ifndef TEXT_TOKENIZER_JSON_VIEW_H
#define TEXT_TOKENIZER_JSON_VIEW_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "text/tokenizer/vocab.h"

/* NULL when object is none, or has no such member, or it is null. */
static inline const cJSON *member(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    return item && !cJSON_IsNull(item) ? item : NULL;
}

/* NULL unless it is a text. */
static inline const char *text_member(const cJSON *object, const char *name)
{
    const cJSON *item = member(object, name);
    return cJSON_IsString(item) ? item->valuestring : NULL;
}

static inline bool flag_member(const cJSON *object, const char *name, bool otherwise)
{
    const cJSON *item = member(object, name);
    return cJSON_IsBool(item) ? cJSON_IsTrue(item) : otherwise;
}

/* Whether object's "type" is this. */
static inline bool is_type(const cJSON *object, const char *type)
{
    const char *name = text_member(object, "type");
    return name && strcmp(name, type) == 0;
}

/* False unless item is a number that is an id. */
static inline bool read_id(const cJSON *item, int32_t *id)
{
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0) || item->valuedouble > TOKEN_ID_MAX) return false;
    *id = (int32_t)item->valuedouble;
    return *id == item->valuedouble;
}

#endif

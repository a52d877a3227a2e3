#include "server/api/unseen_parts.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "server/api/json_field.h"

/* Protocols have names such as image, image_url and input_image for one thing. */
static const char *name_of(const char *type)
{
    static const struct {
        const char *within, *name;
    } kinds[] = {{"image", "an image"}, {"screenshot", "an image"}, {"audio", "a sound"},
                 {"video", "a video"},  {"file", "a file"},         {"document", "a document"}};
    for (size_t i = 0; i < array_length(kinds); i++)
        if (strstr(type, kinds[i].within)) return kinds[i].name;
    return "something";
}

/* All else that the part holds goes: it may be megabytes. */
static cJSON *make_text(const char *text)
{
    cJSON *part = cJSON_CreateObject();
    if (cJSON_AddStringToObject(part, "type", "text") && cJSON_AddStringToObject(part, "text", text))
        return part;
    cJSON_Delete(part);
    return NULL;
}

bool unseen_parts_settle(cJSON *message, int *num_unseen)
{
    cJSON *parts = cJSON_GetObjectItemCaseSensitive(message, "content"), *next;
    for (cJSON *part = cJSON_IsArray(parts) ? parts->child : NULL; part; part = next) {
        const cJSON *type = json_field_find(part, "type"), *text = json_field_find(part, "text");
        char told[96];
        next = part->next;
        if (!cJSON_IsString(type) || !strcmp(type->valuestring, "text")) continue;
        snprintf(told, sizeof told, "[The tool gave %s here that you cannot see: you read text only.]",
                 name_of(type->valuestring));
        if (!cJSON_IsString(text)) ++*num_unseen;
        cJSON *settled = make_text(cJSON_IsString(text) ? text->valuestring : told);
        if (!settled) return false;
        cJSON_ReplaceItemViaPointer(parts, part, settled);
    }
    return true;
}

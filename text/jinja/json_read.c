/* json_read.c - JSON as values. A number is printed as it was written (json_numbers.h), as Python does. */
#include <cjson/cJSON.h>
#include <math.h>

#include "text/jinja/run.h"
#include "text/json_numbers.h"

/* ---- conversion ---- */

static struct value number_from_json(struct run *r, const cJSON *json)
{
    const char *text = json->valuestring;
    double d = json->valuedouble;
    bool integral = text ? !strpbrk(text, ".eE") : d == floor(d);
    if (integral && fabs(d) < 9.2e18) return value_int(text ? strtoll(text, NULL, 10) : (int64_t)d);
    if (!text || !integral) return value_float(d);
    size_t n = strlen(text);
    char *digits = heap_alloc(&r->heap, n + 1);
    if (!digits) return value_none();
    const struct text *copy = text_wrap(&r->heap, memcpy(digits, text, n), n, false);
    return (struct value){.kind = VALUE_LONG, .text = copy};
}

static struct value text_from_json(struct run *r, const char *bytes, bool untrusted, bool copy)
{
    size_t n = strlen(bytes);
    run_charge(r, n);
    if (copy && n > 0) {
        char *copied = heap_alloc(&r->heap, n);
        if (!copied) return value_undefined();
        bytes = memcpy(copied, bytes, n);
    }
    return value_text(text_wrap(&r->heap, bytes, n, untrusted));
}

static int num_children(const cJSON *json)
{
    int num = 0;
    const cJSON *child;
    cJSON_ArrayForEach(child, json) num++;
    return num;
}

static struct value list_from_json(struct run *r, const cJSON *json, bool untrusted, bool copy)
{
    struct list *l = list_create(&r->heap, num_children(json));
    const cJSON *child;
    cJSON_ArrayForEach(child, json) list_append(&r->heap, l, value_from_json(r, child, untrusted, copy));
    return value_list(VALUE_LIST, l);
}

static struct value dict_from_json(struct run *r, const cJSON *json, bool untrusted, bool copy)
{
    struct dict *d = dict_create(&r->heap, num_children(json));
    const cJSON *child;
    cJSON_ArrayForEach(child, json)
    {
        struct value key = text_from_json(r, child->string ? child->string : "", untrusted, copy);
        dict_append(&r->heap, d, key, value_from_json(r, child, untrusted, copy));
    }
    return value_dict(VALUE_DICT, d);
}

struct value value_from_json(struct run *r, const cJSON *json, bool untrusted, bool copy)
{
    struct value v = value_none();
    if (!run_enter(r)) return v;
    if (cJSON_IsString(json)) {
        v = text_from_json(r, json->valuestring, untrusted, copy);
    } else if (cJSON_IsNumber(json)) {
        v = number_from_json(r, json);
    } else if (cJSON_IsBool(json)) {
        v = value_bool(cJSON_IsTrue(json));
    } else if (cJSON_IsArray(json)) {
        v = list_from_json(r, json, untrusted, copy);
    } else if (cJSON_IsObject(json)) {
        v = dict_from_json(r, json, untrusted, copy);
    }
    run_leave(r);
    return v;
}

/* The from_json filter. All of it counts as untrusted when any of the text is. */
struct value value_parse_json(struct run *r, const struct text *json)
{
    const char *end = NULL;
    char *copy = heap_alloc(&r->heap, json->num_bytes + 1);
    if (!copy || !run_charge(r, json->num_bytes)) return value_undefined();
    memcpy(copy, json->bytes, json->num_bytes);
    cJSON *tree = cJSON_ParseWithLengthOpts(copy, json->num_bytes + 1, &end, true);
    if (!tree) return run_fail(r, STATUS_TEMPLATE, "from_json: the text is not JSON");
    struct value v = value_undefined();
    if (json_keep_numbers(tree, copy, json->num_bytes) == 0) {
        v = value_from_json(r, tree, json->num_untrusted > 0, true);
    }
    cJSON_Delete(tree);
    return v;
}

/* /openapi.json against the tables that the server goes by: every route, every field, and nothing else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/check.h"
#include "server/api/codec.h"
#include "server/api/field_table.h"
#include "server/openapi/openapi.h"

static cJSON *document;

static int set_up(void **state)
{
    (void)state;
    document = openapi_make();
    return document ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    cJSON_Delete(document);
    return 0;
}

static cJSON *get(const cJSON *object, const char *name)
{
    return cJSON_GetObjectItemCaseSensitive(object, name);
}

static void every_route_is_told(void **state)
{
    (void)state;
    int num_routes = 0, num_operations = 0;
    const cJSON *path, *each;
    for (const struct route *r = server_routes; r->pattern; r++, num_routes++) {
        const cJSON *operation = openapi_find(document, r);
        if (!operation) fail_msg("openapi.json does not tell of %s", r->pattern);
        assert_non_null(get(operation, "summary"));
        assert_true(!get(operation, "security") == !!(r->flags & ROUTE_OPEN));
        assert_true(!get(operation, "requestBody") == !(r->flags & ROUTE_JSON));
        assert_non_null(get(get(operation, "responses"), "200"));
    }
    cJSON_ArrayForEach(path, get(document, "paths")) /* what lies below another's path has that one's route */
        cJSON_ArrayForEach(each, path) num_operations += !get(each, "x-below");
    assert_int_equal(num_operations, num_routes);
}

/* The schema of a codec's bodies. */
static const cJSON *body_of(const struct codec *codec)
{
    const cJSON *schema;
    cJSON_ArrayForEach(schema, get(get(document, "components"), "schemas"))
    {
        const char *path = cJSON_GetStringValue(get(schema, "x-codec"));
        if (path && !strcmp(path, codec->path)) return get(schema, "properties");
    }
    fail_msg("openapi.json has no body of %s", codec->path);
    return NULL;
}

/* What a codec takes out of the body and reads nothing from. */
static bool is_dropped(const struct codec_field *row)
{
    return !row->read && !row->canonical;
}

static const struct codec_field *find_row(const struct codec *codec, const char *name)
{
    for (const struct codec_field *row = codec->fields; row && row->name; row++)
        if (!strcmp(row->name, name)) return row;
    return NULL;
}

/* A row has this name, or stands for it. */
static bool has_own_name(const struct codec *codec, const char *name)
{
    for (const struct codec_field *row = codec->fields; row && row->name; row++)
        if (!strcmp(row->name, name) || (row->canonical && !strcmp(row->canonical, name))) return true;
    return false;
}

static void every_field_is_told(void **state)
{
    (void)state;
    for (size_t i = 0; i < array_length(all_codecs); i++) {
        const cJSON *body = body_of(all_codecs[i]);
        struct field_facts f;
        for (size_t at = 0; field_table_next(all_codecs[i]->kind, &at, &f);)
            if (!get(body, f.name) && !has_own_name(all_codecs[i], f.name))
                fail_msg("%s: %s is not told", all_codecs[i]->path, f.name);
        for (const struct codec_field *row = all_codecs[i]->fields; row && row->name; row++)
            if (!get(body, row->name) != is_dropped(row))
                fail_msg("%s: %s is not told", all_codecs[i]->path, row->name);
    }
}

/* Members that a codec reads beside its rows. */
static bool is_read_beside(const char *name)
{
    static const char *const names[] = {"system", "raw", "prompt", "suffix", "instructions", "store",
                                        "background", "input_prefix", "input_suffix", "input_extra",
                                        /* what a response tells again */
                                        "max_tool_calls", "metadata", "prompt_cache_key", "safety_identifier",
                                        "service_tier", "user"};
    for (size_t i = 0; i < array_length(names); i++)
        if (!strcmp(names[i], name)) return true;
    return false;
}

static void nothing_else_is_told(void **state)
{
    (void)state;
    const cJSON *member;
    for (size_t i = 0; i < array_length(all_codecs); i++) {
        cJSON_ArrayForEach(member, body_of(all_codecs[i]))
        {
            struct field_facts f;
            bool is_known = find_row(all_codecs[i], member->string) != NULL;
            for (size_t at = 0; !is_known && field_table_next(all_codecs[i]->kind, &at, &f);)
                is_known = !strcmp(f.name, member->string);
            is_known = is_known || (all_codecs[i]->fields && is_read_beside(member->string));
            if (!is_known)
                fail_msg("%s: %s is told and nobody reads it", all_codecs[i]->path, member->string);
        }
    }
    cJSON_ArrayForEach(member, get(document, "x-fields"))
    {
        struct field_facts f;
        bool is_own = false;
        for (int kind = API_COMPLETIONS; kind <= API_SCORING; kind++)
            for (size_t at = 0; !is_own && field_table_next((enum api_kind)kind, &at, &f);)
                is_own = f.type == FIELD_OWN && !strcmp(f.name, member->string);
        if (!is_own) fail_msg("x-fields: %s is none", member->string);
    }
}

/* "$ref" names what is there. */
static void check_references(const cJSON *value)
{
    static const char prefix[] = "#/components/schemas/";
    const cJSON *child;
    const char *reference = cJSON_GetStringValue(get(value, "$ref"));
    if (reference && (strncmp(reference, prefix, strlen(prefix)) != 0 ||
                      !get(get(get(document, "components"), "schemas"), reference + strlen(prefix))))
        fail_msg("%s is not there", reference);
    cJSON_ArrayForEach(child, value) check_references(child);
}

static void references_lead_somewhere(void **state)
{
    (void)state;
    check_references(document);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_route_is_told),
        cmocka_unit_test(every_field_is_told),
        cmocka_unit_test(nothing_else_is_told),
        cmocka_unit_test(references_lead_somewhere),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

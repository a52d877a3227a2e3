/* $ref: a place in the same document, by pointer, anchor or a schema's own $id. */
#include <string.h>

#include "base/check.h"
#include "text/grammar/schema.h"
#include "text/json_pointer.h"

/* A schema with an $id (or the root), and which schemas below it are its own. */
struct resource {
    const cJSON *node;
    const char *id; /* absolute, without fragment; NULL for a root without one */
};

struct owner {
    const cJSON *node; /* with a $ref */
    int resource;
};

struct anchor {
    const cJSON *node;
    const char *name;
    int resource;
    bool is_dynamic;
};

enum { DOCUMENT_DEPTH_MAX = 1000, TABLE_MAX = 1 << 16, KNOWN_SLOTS = 512 };

/* Where the reference of a node leads, once it was followed. */
struct known_reference {
    struct known_reference *next;
    const cJSON *node, *target;
    const char *reference;
};

struct schema_resources {
    struct pool resources, owners, anchors;
    struct known_reference *known[KNOWN_SLOTS];
};

static char *join(struct compiler *c, const char *base, const char *reference, size_t n)
{
    size_t keep = 0;
    const char *scheme = memchr(reference, ':', n);
    if (base && !scheme) {
        const char *authority = strstr(base, "://"), *path = authority ? strchr(authority + 3, '/') : NULL;
        const char *slash = strrchr(base, '/');
        keep = reference[0] == '/' && path ? (size_t)(path - base) : slash ? (size_t)(slash - base) + 1 : 0;
        if (authority && !path) keep = strlen(base);
    }
    char *out = schema_alloc(c, keep + n + 1);
    if (c->status) return out;
    if (keep > 0) memcpy(out, base, keep);
    memcpy(out + keep, reference, n);
    out[keep + n] = '\0';
    return out;
}

static void add_anchor(struct compiler *c, const cJSON *node, const char *name, int resource, bool is_dynamic)
{
    struct anchor *a = pool_push(&c->resources->anchors, 1);
    if (a) *a = (struct anchor){node, name, resource, is_dynamic};
}

static int enter_resource(struct compiler *c, const cJSON *node, const char *id, int resource)
{
    const struct resource *outer =
        resource >= 0 ? pool_items(struct resource, &c->resources->resources) + resource : NULL;
    const char *base = outer ? outer->id : NULL;
    size_t n = strcspn(id, "#");
    if (id[n] == '#' && id[n + 1] && id[n + 1] != '/') add_anchor(c, node, id + n + 1, resource, false);
    if (n == 0 && resource >= 0) return resource;
    char *absolute = n > 0 ? join(c, base, id, n) : NULL;
    struct resource *r = pool_push(&c->resources->resources, 1);
    if (r) *r = (struct resource){node, absolute};
    return (int)c->resources->resources.count - 1;
}

static bool is_one_of(const char *name, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(name, names[i])) return true;
    return false;
}

/* Keywords whose value is a map of schemas; those whose value is a schema or a list of them. */
static const char *const map_keywords[] = {"properties",  "patternProperties", "$defs",
                                           "definitions", "dependentSchemas",  "dependencies"};
static const char *const schema_keywords[] = {"items",
                                              "prefixItems",
                                              "additionalItems",
                                              "additionalProperties",
                                              "contains",
                                              "not",
                                              "if",
                                              "then",
                                              "else",
                                              "allOf",
                                              "anyOf",
                                              "oneOf",
                                              "propertyNames",
                                              "unevaluatedProperties",
                                              "unevaluatedItems"};

/* is_map: the keys of node are names that a user chose ("properties"), not keywords. */
static void scan(struct compiler *c, const cJSON *node, int resource, bool is_map, int depth)
{
    if (c->status || !node) return;
    if (depth > DOCUMENT_DEPTH_MAX) {
        schema_fail(c, STATUS_LIMIT, "the schema is nested too deeply");
        return;
    }
    if (cJSON_IsObject(node) && !is_map) {
        const cJSON *id = schema_get(node, "$id");
        if (!id) id = schema_get(node, "id");
        if (node == c->root || cJSON_IsString(id))
            resource = enter_resource(c, node, cJSON_IsString(id) ? id->valuestring : "", resource);
        const cJSON *anchor = schema_get(node, "$anchor"), *dynamic = schema_get(node, "$dynamicAnchor");
        if (cJSON_IsString(anchor)) add_anchor(c, node, anchor->valuestring, resource, false);
        if (cJSON_IsString(dynamic)) add_anchor(c, node, dynamic->valuestring, resource, true);
        if (resource > 0 && (schema_get(node, "$ref") || schema_get(node, "$dynamicRef"))) {
            struct owner *o = pool_push(&c->resources->owners, 1);
            if (o) *o = (struct owner){node, resource};
        }
    }
    for (const cJSON *k = node->child; k; k = k->next) {
        bool is_schema =
            is_map || !k->string || is_one_of(k->string, schema_keywords, array_length(schema_keywords));
        bool below_map =
            !is_schema && cJSON_IsObject(k) && is_one_of(k->string, map_keywords, array_length(map_keywords));
        if (k->child && (is_schema || below_map)) scan(c, k, resource, below_map, depth + 1);
    }
}

static void scan_document(struct compiler *c)
{
    c->resources = schema_alloc(c, sizeof *c->resources);
    if (c->status) return;
    pool_init(&c->resources->resources, sizeof(struct resource), TABLE_MAX);
    pool_init(&c->resources->owners, sizeof(struct owner), TABLE_MAX);
    pool_init(&c->resources->anchors, sizeof(struct anchor), TABLE_MAX);
    scan(c, c->root, -1, false, 0);
}

void schema_free_resources(struct compiler *c)
{
    if (!c->resources) return;
    pool_deinit(&c->resources->resources);
    pool_deinit(&c->resources->owners);
    pool_deinit(&c->resources->anchors);
    c->resources = NULL;
}

static int resource_of(struct compiler *c, const cJSON *node)
{
    const struct owner *o = pool_items(struct owner, &c->resources->owners);
    if (!schema_charge(c, c->resources->owners.count)) return 0;
    for (uint32_t i = 0; i < c->resources->owners.count; i++)
        if (o[i].node == node) return o[i].resource;
    return 0;
}

static int find_resource(struct compiler *c, int base, const char *uri, size_t n)
{
    const struct resource *r = pool_items(struct resource, &c->resources->resources);
    const char *absolute = join(c, r[base].id, uri, n);
    if (!schema_charge(c, 2 * (size_t)c->resources->resources.count)) return base;
    for (uint32_t i = 0; i < c->resources->resources.count && !c->status; i++)
        if (r[i].id && !strcmp(r[i].id, absolute)) return (int)i;
    for (uint32_t i = 0; i < c->resources->resources.count && !c->status; i++)
        if (r[i].id && strlen(r[i].id) == n && !memcmp(r[i].id, uri, n)) return (int)i;
    return -1;
}

/* ---- fragments ---- */

static const cJSON *find_anchor(const struct compiler *c, int resource, const char *name, bool *is_dynamic)
{
    const struct anchor *a = pool_items(struct anchor, &c->resources->anchors);
    const cJSON *found = NULL;
    int num_dynamic = 0;
    for (uint32_t i = 0; i < c->resources->anchors.count; i++) {
        if (strcmp(a[i].name, name) != 0) continue;
        num_dynamic += a[i].is_dynamic;
        if (!found && a[i].resource == resource) found = a[i].node;
    }
    *is_dynamic = num_dynamic > 1;
    return found;
}

static const cJSON *find_target(struct compiler *c, const cJSON *node, const char *reference)
{
    bool is_dynamic = false;
    if (!strcmp(reference, "#") && c->resources->resources.count == 1) return c->root;
    int resource = resource_of(c, node);
    size_t n = strcspn(reference, "#");
    if (n > 0) resource = find_resource(c, resource, reference, n);
    if (resource < 0) {
        schema_fail(c, STATUS_UNSUPPORTED, "\"$ref\" at %s is not supported: \"%.100s\" is another document",
                    schema_path(c, node), reference);
        return NULL;
    }
    const cJSON *base = pool_items(struct resource, &c->resources->resources)[resource].node, *target;
    const char *fragment = reference[n] == '#' ? reference + n + 1 : "";
    size_t num_seen = 0;
    if (*fragment == '\0' || *fragment == '/') {
        target = json_pointer_follow(base, fragment, &num_seen);
        if (!target && n == 0)
            target =
                json_pointer_follow(c->root, fragment, &num_seen); /* draft 4's "id" was often a remark */
    } else {
        target = find_anchor(c, resource, fragment, &is_dynamic);
        num_seen = c->resources->anchors.count;
    }
    if (!schema_charge(c, num_seen)) return NULL;
    if (is_dynamic && schema_get(node, "$dynamicRef"))
        schema_fail(c, STATUS_UNSUPPORTED,
                    "\"$dynamicRef\" at %s is not supported: its anchor stands at several places",
                    schema_path(c, node));
    else if (!target)
        schema_fail(c, STATUS_INVALID, "\"$ref\" at %s points to \"%.100s\", where there is nothing",
                    schema_path(c, node), reference);
    return c->status ? NULL : target;
}

const cJSON *schema_resolve(struct compiler *c, const cJSON *node, const char *reference)
{
    if (!c->resources) scan_document(c);
    if (c->status) return NULL;
    struct known_reference **slot = &c->resources->known[((uintptr_t)node >> 4) % KNOWN_SLOTS];
    for (struct known_reference *k = *slot; k; k = k->next)
        if (k->node == node && k->reference == reference) return k->target;
    const cJSON *target = find_target(c, node, reference);
    struct known_reference *k = schema_alloc(c, sizeof *k);
    if (c->status) return NULL;
    *k = (struct known_reference){*slot, node, target, reference};
    *slot = k;
    return target;
}

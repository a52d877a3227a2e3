#include <string.h>

#include "base/check.h"
#include "text/grammar/schema.h"

/* The schema false, however it was written. */
static const cJSON never = {.type = cJSON_False};

/* In the order in which they were found, which is that of the properties in an answer. */
static void insert_atom(struct compiler *c, struct conjunction *to, struct atom atom)
{
    for (int i = 0; i < to->num_atoms; i++) {
        if (to->atoms[i].node != atom.node || to->atoms[i].negated != atom.negated) continue;
        to->atoms[i].done |= atom.done;
        return;
    }
    struct atom *atoms = schema_alloc(c, (size_t)(to->num_atoms + 1) * sizeof *atoms);
    if (c->status) return;
    if (to->num_atoms > 0) memcpy(atoms, to->atoms, (size_t)to->num_atoms * sizeof *atoms);
    atoms[to->num_atoms++] = atom;
    to->atoms = atoms;
}

/* true says nothing; all ways of saying false are one. */
static void add_atom(struct compiler *c, struct conjunction *to, struct atom atom)
{
    bool is_boolean = cJSON_IsBool(atom.node);
    if (is_boolean && cJSON_IsTrue(atom.node) != atom.negated) return;
    if (is_boolean) atom = (struct atom){.node = &never};
    insert_atom(c, to, atom);
}

void conjunction_add(struct compiler *c, struct conjunction *to, const cJSON *node, bool negated)
{
    add_atom(c, to, (struct atom){node, negated, 0});
    if (to->origin != node) to->origin = NULL;
}

struct conjunction conjunction_of(struct compiler *c, const cJSON *node)
{
    struct conjunction k = {.origin = node};
    add_atom(c, &k, (struct atom){node, false, 0});
    return k;
}

bool conjunction_is_never(const struct conjunction *k)
{
    for (int i = 0; i < k->num_atoms; i++)
        if (k->atoms[i].node == &never) return true;
    return false;
}

static bool has_atom(const struct conjunction *k, const cJSON *node)
{
    for (int i = 0; i < k->num_atoms; i++)
        if (k->atoms[i].node == node && !k->atoms[i].negated) return true;
    return false;
}

static void flatten_atom(struct compiler *c, struct conjunction *to, struct atom atom, int depth);

/* What $ref and allOf bring along. */
static void follow(struct compiler *c, struct conjunction *to, const cJSON *node, int depth)
{
    for (const cJSON *k = node->child; k && !c->status; k = k->next) {
        if (cJSON_IsString(k) && (!strcmp(k->string, "$ref") || !strcmp(k->string, "$dynamicRef"))) {
            const cJSON *target = schema_resolve(c, node, k->valuestring);
            if (target) flatten_atom(c, to, (struct atom){target, false, 0}, depth + 1);
        } else if (cJSON_IsArray(k) && !strcmp(k->string, "allOf")) {
            for (const cJSON *part = k->child; part; part = part->next)
                flatten_atom(c, to, (struct atom){part, false, 0}, depth + 1);
        }
    }
}

static void refuse_size(struct compiler *c, int depth)
{
    if (depth > SCHEMA_DEPTH_MAX)
        schema_fail(c, STATUS_LIMIT, "the schema's references and allOf nest more than %d deep",
                    SCHEMA_DEPTH_MAX);
    else if (c->negated)
        schema_fail(
            c, STATUS_LIMIT,
            "too much must be told apart for oneOf, not or if (at last %s): a required property with a "
            "const of its own in each alternative tells them apart, anyOf need not",
            schema_path(c, c->negated));
    else
        schema_fail(c, STATUS_LIMIT,
                    "the schema is too large: it has more than %d parts, counted as often as "
                    "they are used (1,024 comparisons of values or names are one)",
                    min_of((int)SCHEMA_WORK_MAX, c->b.schema_work));
}

bool schema_charge(struct compiler *c, size_t num_steps)
{
    enum { STEPS_AN_ATOM = 1024 };
    const int most = min_of((int)SCHEMA_WORK_MAX, c->b.schema_work);
    c->num_steps += num_steps;
    c->work += (int)min_of(c->num_steps / STEPS_AN_ATOM, (uint64_t)most + 1);
    c->num_steps %= STEPS_AN_ATOM;
    if (c->work > most) refuse_size(c, 0);
    return !c->status;
}

static void flatten_atom(struct compiler *c, struct conjunction *to, struct atom atom, int depth)
{
    if (c->status) return;
    if (++c->work > min_of((int)SCHEMA_WORK_MAX, c->b.schema_work) || depth > SCHEMA_DEPTH_MAX) {
        refuse_size(c, depth);
        return;
    }
    bool is_flat = atom.done & CHOICE_FLAT;
    atom.done |= CHOICE_FLAT;
    if (atom.negated || cJSON_IsBool(atom.node)) {
        add_atom(c, to, atom);
        return;
    }
    if (!cJSON_IsObject(atom.node)) {
        schema_fail(c, STATUS_INVALID, "%s is no schema: an object or a boolean is expected",
                    schema_path(c, atom.node));
        return;
    }
    if (has_atom(to, atom.node) && !is_flat) return;
    if (shape_limits(c, atom.node, atom.done)) add_atom(c, to, atom);
    if (!is_flat) follow(c, to, atom.node, depth);
}

/* The schema that all atoms come from: behind bare references, and only where it is an atom itself. */
static const cJSON *find_origin(struct compiler *c, const struct conjunction *k)
{
    const cJSON *origin = k->origin;
    if (k->num_atoms == 1 && !k->atoms[0].negated) return k->atoms[0].node;
    for (int i = 0; origin && i < SCHEMA_DEPTH_MAX && !has_atom(k, origin); i++) {
        const cJSON *reference = schema_get(origin, "$ref");
        if (!cJSON_IsString(reference) || schema_get(origin, "allOf")) return NULL;
        origin = schema_resolve(c, origin, reference->valuestring);
    }
    return origin;
}

struct conjunction conjunction_flatten(struct compiler *c, const struct conjunction *from)
{
    struct conjunction to = {.origin = from->origin};
    for (int i = 0; i < from->num_atoms;
         i++) /* choices that are made come first, so that none is made again */
        if (from->atoms[i].done & CHOICE_FLAT) flatten_atom(c, &to, from->atoms[i], 0);
    for (int i = 0; i < from->num_atoms; i++)
        if (!(from->atoms[i].done & CHOICE_FLAT)) flatten_atom(c, &to, from->atoms[i], 0);
    to.origin = find_origin(c, &to);
    return to;
}

bool conjunction_equal(const struct conjunction *a, const struct conjunction *b)
{
    if (a->num_atoms != b->num_atoms || a->origin != b->origin) return false;
    for (int i = 0; i < a->num_atoms; i++)
        if (a->atoms[i].node != b->atoms[i].node || a->atoms[i].negated != b->atoms[i].negated ||
            a->atoms[i].done != b->atoms[i].done)
            return false;
    return true;
}

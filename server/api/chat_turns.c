#include "server/api/chat_turns.h"

#include <stdio.h>
#include <string.h>

#include "base/buffer.h"
#include "server/api/json_field.h"

enum { RESULTS_MAX = 256 }; /* of one answer, looked at */

static cJSON *get(const cJSON *object, const char *name)
{
    return cJSON_GetObjectItemCaseSensitive(object, name);
}

static bool has_role(const cJSON *message, const char *role)
{
    const char *own = cJSON_GetStringValue(get(message, "role"));
    return own && !strcmp(own, role);
}

static bool is_result(const cJSON *message)
{
    return has_role(message, "tool") || has_role(message, "function");
}

static bool has_calls(const cJSON *message)
{
    const cJSON *calls = get(message, "tool_calls");
    return calls && calls->child;
}

static bool become_user(cJSON *message)
{
    return cJSON_ReplaceItemInObjectCaseSensitive(message, "role", cJSON_CreateString("user"));
}

/* What is left of from goes behind to. */
static void move_rest(cJSON *to, cJSON *from)
{
    while (from->child) cJSON_AddItemToArray(to, cJSON_DetachItemViaPointer(from, from->child));
    cJSON_Delete(from);
}

/* The messages, to be put back one by one; NULL: no memory. */
static cJSON *take_all(cJSON *messages)
{
    cJSON *taken = cJSON_CreateArray();
    if (!taken) return NULL;
    taken->child = messages->child;
    messages->child = NULL;
    return taken;
}

/* ---- content ---- */

static bool add_part(cJSON *parts, bool is_first, const char *text)
{
    cJSON *part = cJSON_CreateObject();
    if (cJSON_AddStringToObject(part, "type", "text") && cJSON_AddStringToObject(part, "text", text) &&
        (is_first ? cJSON_InsertItemInArray(parts, 0, part) : cJSON_AddItemToArray(parts, part)))
        return true;
    cJSON_Delete(part);
    return false;
}

static bool replace_content(cJSON *message, cJSON *content)
{
    cJSON_DeleteItemFromObjectCaseSensitive(message, "content");
    if (content && cJSON_AddItemToObject(message, "content", content)) return true;
    cJSON_Delete(content);
    return false;
}

const char *chat_turns_text(const cJSON *message)
{
    const cJSON *content = get(message, "content");
    if (cJSON_IsArray(content)) content = get(content->child ? content->child->prev : NULL, "text");
    return cJSON_GetStringValue(content);
}

bool chat_turns_empty(cJSON *message, bool wants_parts)
{
    return replace_content(message, wants_parts ? cJSON_CreateArray() : cJSON_CreateString(""));
}

bool chat_turns_append(cJSON *message, const char *text)
{
    cJSON *content = get(message, "content");
    if (cJSON_IsArray(content)) return add_part(content, false, text);
    const char *own = cJSON_IsString(content) ? content->valuestring : "";
    struct buffer joined;
    buffer_init(&joined, SIZE_MAX / 2);
    buffer_append_text(&joined, own);
    if (*own) buffer_append_char(&joined, '\n');
    buffer_append_text(&joined, text);
    bool added = !buffer_failed(&joined) &&
                 replace_content(message, cJSON_CreateString(joined.data ? joined.data : ""));
    buffer_deinit(&joined);
    return added;
}

/* A message without text, behind the others. */
static cJSON *add_empty(cJSON *messages, const char *role, bool wants_parts)
{
    cJSON *message = cJSON_CreateObject();
    bool made = cJSON_AddStringToObject(message, "role", role);
    if (made && wants_parts)
        made = cJSON_AddArrayToObject(message, "content") && add_part(get(message, "content"), true, "");
    if (made && !wants_parts) made = cJSON_AddStringToObject(message, "content", "");
    if (made && cJSON_AddItemToArray(messages, message)) return message;
    cJSON_Delete(message);
    return NULL;
}

/* ---- one call an answer ---- */

/* The result of a call becomes the last message: without ids the first one. */
static void move_result(cJSON *messages, cJSON *from, const cJSON *call)
{
    const char *id = cJSON_GetStringValue(get(call, "id"));
    cJSON *m = from->child;
    for (int i = 0; m && is_result(m) && i < RESULTS_MAX; m = m->next, i++) {
        const char *own = cJSON_GetStringValue(get(m, "tool_call_id"));
        if (id && own && strcmp(id, own) != 0) continue;
        cJSON_AddItemToArray(messages, cJSON_DetachItemViaPointer(from, m));
        return;
    }
}

/* Takes the call. */
static bool add_answer(cJSON *messages, cJSON *call, bool wants_parts, bool content_is_null)
{
    cJSON *message = cJSON_CreateObject(), *calls = NULL;
    bool made = cJSON_AddStringToObject(message, "role", "assistant") &&
                (content_is_null ? cJSON_AddNullToObject(message, "content") != NULL
                                 : chat_turns_empty(message, wants_parts)) &&
                (calls = cJSON_AddArrayToObject(message, "tool_calls"));
    if (made && cJSON_AddItemToArray(calls, call) && cJSON_AddItemToArray(messages, message)) return true;
    if (!made) cJSON_Delete(call);
    cJSON_Delete(message);
    return false;
}

bool chat_turns_split(cJSON *messages, bool wants_parts, bool content_is_null)
{
    cJSON *from = take_all(messages), *message;
    bool ok = from;
    while (ok && (message = from->child)) {
        cJSON *calls = get(message, "tool_calls"), *call;
        cJSON_AddItemToArray(messages, cJSON_DetachItemViaPointer(from, message));
        if (!has_role(message, "assistant") || !has_calls(message) || !calls->child->next) continue;
        move_result(messages, from, calls->child);
        while (ok && (call = calls->child->next)) {
            ok = add_answer(messages, cJSON_DetachItemViaPointer(calls, call), wants_parts, content_is_null);
            if (ok) move_result(messages, from, call);
        }
    }
    if (from) move_rest(messages, from);
    return ok;
}

/* ---- messages that a template refuses ---- */

/* Whether next becomes a part of the one before it. */
static bool goes_on(const cJSON *first, const cJSON *last, const cJSON *next)
{
    if (has_role(next, "system")) return last == first && has_role(last, "system");
    if (has_role(next, "assistant"))
        return has_role(last, "assistant") && !has_calls(last) && !has_calls(next);
    return has_role(next, "user") && has_role(last, "user");
}

/* A message and those that become a part of it, whose text is put together once. */
struct run {
    cJSON *message;
    bool has_more;      /* of a text that is none of parts, */
    struct buffer text; /* which this is */
};

static void run_begin(struct run *r, cJSON *message)
{
    const char *own = cJSON_GetStringValue(get(message, "content"));
    *r = (struct run){.message = message};
    buffer_init(&r->text, SIZE_MAX / 2);
    buffer_append_text(&r->text, own ? own : "");
}

/* The content of from behind that of the run. */
static bool run_take(struct run *r, cJSON *from)
{
    cJSON *content = get(from, "content"), *own = get(r->message, "content");
    if (cJSON_IsString(content) && !cJSON_IsArray(own)) {
        r->has_more |= content->valuestring[0] != '\0';
        if (r->text.num_bytes > 0 && content->valuestring[0]) buffer_append_char(&r->text, '\n');
        buffer_append_text(&r->text, content->valuestring);
        return !buffer_failed(&r->text);
    }
    if (cJSON_IsString(content))
        return !content->valuestring[0] || add_part(own, false, content->valuestring);
    if (!cJSON_IsArray(content) || !cJSON_IsArray(own)) return true;
    if (own->child && !add_part(own, false, "\n")) return false;
    while (content->child) cJSON_AddItemToArray(own, cJSON_DetachItemViaPointer(content, content->child));
    return true;
}

static bool run_end(struct run *r)
{
    bool done = !r->has_more || replace_content(r->message, cJSON_CreateString(r->text.data));
    buffer_deinit(&r->text);
    return done;
}

/* What goes on from a message becomes a part of it; a system message that does not is the user's before. */
static bool join_run(cJSON *messages, cJSON *message, bool *changed)
{
    struct run run;
    bool ok = true;
    run_begin(&run, message);
    for (cJSON *next; ok && (next = message->next);) {
        bool is_late = has_role(next, "system") && !goes_on(messages->child, message, next);
        if (is_late) ok = become_user(next);
        *changed |= is_late;
        if (!ok || !goes_on(messages->child, message, next)) break;
        ok = run_take(&run, next);
        cJSON_Delete(cJSON_DetachItemViaPointer(messages, next));
        *changed = true;
    }
    return run_end(&run) && ok;
}

static bool join(cJSON *messages)
{
    bool changed = false, ok = true;
    for (cJSON *message = messages->child; ok && message; message = message->next)
        ok = join_run(messages, message, &changed);
    return ok && changed;
}

/* ---- ids of calls ---- */

enum { ID_BYTES = 9 };

static bool is_plain_id(const cJSON *id)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    const char *text = cJSON_GetStringValue(id);
    return text && strlen(text) == ID_BYTES && strspn(text, allowed) == ID_BYTES;
}

static bool set_number(cJSON *object, const char *name, unsigned number)
{
    char id[ID_BYTES + 1];
    snprintf(id, sizeof id, "call%05u", number % 100000);
    cJSON_DeleteItemFromObjectCaseSensitive(object, name);
    return cJSON_AddStringToObject(object, name, id);
}

/* The call that a result is of: the one with its id; without an id, the one at its place. */
static cJSON *call_of(const cJSON *calls, const cJSON *result, int place)
{
    const char *id = cJSON_GetStringValue(get(result, "tool_call_id"));
    cJSON *call;
    int i = 0;
    cJSON_ArrayForEach(call, calls)
    {
        const char *own = cJSON_GetStringValue(get(call, "id"));
        if (id && *id ? own && !strcmp(id, own) : place == i) return call;
        if (++i >= RESULTS_MAX) break;
    }
    return NULL;
}

/* Results of these calls get the new ids while the calls have the old ones. */
static bool number_results(const cJSON *message, const cJSON *calls, unsigned first, bool *changed)
{
    bool ok = true;
    int place = 0;
    for (cJSON *m = message->next; ok && m && is_result(m) && place < RESULTS_MAX; m = m->next, place++) {
        const cJSON *call = call_of(calls, m, place), *other;
        unsigned idx = 0;
        if (!call || is_plain_id(get(call, "id"))) continue;
        cJSON_ArrayForEach(other, calls)
        {
            if (other == call) break;
            idx++;
        }
        ok = set_number(m, "tool_call_id", first + idx);
        *changed = true;
    }
    return ok;
}

static bool number_calls(cJSON *messages)
{
    bool changed = false, ok = true;
    unsigned count = 0;
    cJSON *m, *call;
    cJSON_ArrayForEach(m, messages)
    {
        cJSON *calls = get(m, "tool_calls");
        if (!ok || !has_calls(m)) continue;
        ok = number_results(m, calls, count, &changed);
        cJSON_ArrayForEach(call, calls)
        {
            unsigned number = count++;
            if (!ok || is_plain_id(get(call, "id"))) continue;
            ok = set_number(call, "id", number);
            changed = true;
        }
    }
    return ok && changed;
}

/* ---- results and turns ---- */

/* As Hermes' notation has results. */
static bool mark_result(cJSON *message)
{
    static const char begin[] = "<tool_response>\n", end[] = "\n</tool_response>";
    cJSON *content = get(message, "content");
    if (cJSON_IsArray(content)) return add_part(content, true, begin) && chat_turns_append(message, end);
    struct buffer text;
    buffer_init(&text, SIZE_MAX / 2);
    buffer_append_text(&text, begin);
    buffer_append_text(&text, cJSON_IsString(content) ? content->valuestring : "");
    buffer_append_text(&text, end);
    bool marked = !buffer_failed(&text) && replace_content(message, cJSON_CreateString(text.data));
    buffer_deinit(&text);
    return marked;
}

bool chat_turns_give_results_to_user(cJSON *messages, bool *changed)
{
    bool ok = true, follows_calls = false;
    cJSON *m;
    *changed = false;
    cJSON_ArrayForEach(m, messages)
    {
        if (!is_result(m)) follows_calls = has_calls(m);
        if (!ok || !is_result(m) || follows_calls) continue;
        ok = mark_result(m) && become_user(m);
        *changed = true;
    }
    return ok;
}

static const char *missing_before(const cJSON *last, const cJSON *next)
{
    if (has_role(next, "user") && last && (is_result(last) || has_calls(last))) return "assistant";
    if (has_role(next, "assistant") && (!last || has_role(last, "system"))) return "user";
    return NULL;
}

static bool add_missing(cJSON *messages, bool wants_parts)
{
    cJSON *from = take_all(messages), *last = NULL;
    bool changed = false, ok = from;
    while (ok && from->child) {
        const char *missing = missing_before(last, from->child);
        if (missing) ok = add_empty(messages, missing, wants_parts);
        changed |= missing != NULL;
        last = cJSON_DetachItemViaPointer(from, from->child);
        cJSON_AddItemToArray(messages, last);
    }
    if (from) move_rest(messages, from);
    return ok && changed;
}

static bool say_nothing_in_parts(cJSON *messages)
{
    bool changed = false, ok = true;
    cJSON *m;
    cJSON_ArrayForEach(m, messages)
    {
        const cJSON *content = get(m, "content");
        bool says_nothing = cJSON_IsString(content) ? !content->valuestring[0] : !content->child;
        if (!ok || !has_role(m, "assistant") || has_calls(m) || !says_nothing) continue;
        ok = replace_content(m, cJSON_CreateArray()) && add_part(get(m, "content"), true, "");
        changed = true;
    }
    return ok && changed;
}

static bool give_system_to_user(cJSON *messages)
{
    bool changed = false, ok = true;
    cJSON *m;
    cJSON_ArrayForEach(m, messages)
    {
        if (!ok || !has_role(m, "system")) continue;
        ok = become_user(m);
        changed = true;
    }
    if (ok && changed) (void)join(messages);
    return ok && changed;
}

bool chat_turns_change(cJSON *messages, enum chat_turns_change change, bool wants_parts)
{
    bool changed;
    switch (change) {
    case TURNS_NUMBERED:
        return number_calls(messages);
    case TURNS_JOINED:
        return join(messages);
    case TURNS_RESULTS:
        if (!chat_turns_give_results_to_user(messages, &changed) || !changed) return false;
        join(messages);
        return true;
    case TURNS_EMPTY:
        return add_missing(messages, wants_parts);
    case TURNS_PARTS:
        return say_nothing_in_parts(messages);
    case TURNS_SYSTEM:
        return give_system_to_user(messages);
    case NUM_TURNS_CHANGES:
        break;
    }
    return false;
}

/* ---- messages that have no room ---- */

static size_t num_text_bytes(const cJSON *value)
{
    size_t n = cJSON_IsString(value) ? strlen(value->valuestring) : 0;
    if (cJSON_IsArray(value) || cJSON_IsObject(value))
        for (const cJSON *item = value->child; item; item = item->next) n += num_text_bytes(item);
    return n;
}

/* The first message of the turn behind the one that begins with this message; NULL: there is none. */
static cJSON *next_turn(const cJSON *message)
{
    cJSON *next = message->next;
    while (next && !has_role(next, "user")) next = next->next;
    return next;
}

int chat_turns_drop(cJSON *messages, double share)
{
    cJSON *first = messages->child, *end;
    double least = share * (double)num_text_bytes(messages), gone = 0;
    int count = 0;
    while (first && has_role(first, "system")) first = first->next;
    while (first && gone < least && (end = next_turn(first))) {
        while (first != end) {
            cJSON *next = first->next;
            gone += (double)num_text_bytes(first);
            cJSON_Delete(cJSON_DetachItemViaPointer(messages, first));
            first = next;
            count++;
        }
    }
    return count;
}

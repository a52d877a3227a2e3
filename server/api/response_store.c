#include "server/api/response_store.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "server/tenant_group.h"

enum { NUM_BUCKETS = 1024 };

struct record {
    struct record *next_in_bucket;
    struct record *older, *newer; /* of its part */
    struct holder *holder;
    struct part *part;
    bool taken;
    char id[RESPONSE_ID_BYTES];
    size_t num_bytes[NUM_RESPONSE_TEXTS];
    char bytes[]; /* the texts, one behind the other */
};

/* What is kept for a tenant. */
struct part {
    size_t num_bytes;
    struct record *oldest, *newest;
    struct record *untaken; /* the oldest; those behind it are, too */
};

/* A key and what is kept for it, as long as there is something. */
struct holder {
    struct holder *next;
    int api_key_idx;
    size_t num_bytes;
    struct part parts[TENANT_GROUPS];
};

struct response_store {
    pthread_mutex_t mutex;
    size_t num_bytes, max_bytes;
    int64_t num_untaken, num_unfinished;
    struct holder *holders;
    struct record *buckets[NUM_BUCKETS];
};

struct response_store *response_store_create(size_t max_bytes)
{
    struct response_store *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    pthread_mutex_init(&s->mutex, NULL);
    s->max_bytes = max_bytes;
    return s;
}

static size_t bytes_of(const struct record *r)
{
    size_t n = sizeof *r;
    for (int i = 0; i < NUM_RESPONSE_TEXTS; i++) n += r->num_bytes[i];
    return n;
}

static bool is_unfinished(const struct record *r)
{
    return r->num_bytes[RESPONSE_HISTORY] == 0;
}

/* Where the pointer to the record stands, or to its bucket's end. */
static struct record **find(struct response_store *s, int api_key_idx, const char *id)
{
    uint32_t hash = 2166136261u;
    for (const char *c = id; *c; c++) hash = (hash ^ (unsigned char)*c) * 16777619u;
    struct record **at = &s->buckets[hash % NUM_BUCKETS];
    while (*at && ((*at)->holder->api_key_idx != api_key_idx || strcmp((*at)->id, id) != 0))
        at = &(*at)->next_in_bucket;
    return at;
}

static struct holder *holder_of(struct response_store *s, int api_key_idx)
{
    struct holder *h = s->holders;
    while (h && h->api_key_idx != api_key_idx) h = h->next;
    if (h) return h;
    h = calloc(1, sizeof *h);
    if (!h) return NULL;
    h->next = s->holders;
    h->api_key_idx = api_key_idx;
    return s->holders = h;
}

static void release_if_empty(struct response_store *s, struct holder *h)
{
    struct holder **at = &s->holders;
    if (h->num_bytes > 0) return;
    while (*at != h) at = &(*at)->next;
    *at = h->next;
    free(h);
}

/* Its holder stays, even with nothing. */
static void drop(struct response_store *s, struct record **at)
{
    struct record *r = *at;
    struct part *p = r->part;
    *at = r->next_in_bucket;
    if (p->untaken == r) p->untaken = r->newer;
    s->num_untaken -= !r->taken;
    s->num_unfinished -= is_unfinished(r);
    *(r->older ? &r->older->newer : &p->oldest) = r->newer;
    *(r->newer ? &r->newer->older : &p->newest) = r->older;
    s->num_bytes -= bytes_of(r);
    r->holder->num_bytes -= bytes_of(r);
    p->num_bytes -= bytes_of(r);
    free(r);
}

static void drop_oldest(struct response_store *s, struct holder *h, struct part *p)
{
    drop(s, find(s, h->api_key_idx, p->oldest->id));
}

void response_store_destroy(struct response_store *s)
{
    if (!s) return;
    while (s->holders) {
        struct holder *h = s->holders;
        for (struct part *p = h->parts; p < h->parts + TENANT_GROUPS; p++)
            while (p->oldest) drop_oldest(s, h, p);
        release_if_empty(s, h);
    }
    pthread_mutex_destroy(&s->mutex);
    free(s);
}

static struct record *make_record(const char *id, const struct response_texts *texts)
{
    struct record *r;
    size_t n = 0;
    for (int i = 0; i < NUM_RESPONSE_TEXTS; i++) n += texts->num_bytes[i];
    r = malloc(sizeof *r + n);
    if (!r) return NULL;
    *r = (struct record){0};
    memcpy(r->id, id, strlen(id) + 1);
    char *to = r->bytes;
    for (int i = 0; i < NUM_RESPONSE_TEXTS; i++) {
        r->num_bytes[i] = texts->num_bytes[i];
        if (r->num_bytes[i] > 0) memcpy(to, texts->bytes[i], r->num_bytes[i]);
        to += r->num_bytes[i];
    }
    return r;
}

/* Who holds most, h with n bytes more. */
static struct holder *find_largest(struct response_store *s, struct holder *h, size_t n)
{
    struct holder *largest = h;
    for (struct holder *other = s->holders; other; other = other->next)
        if (other->num_bytes > (largest == h ? h->num_bytes + n : largest->num_bytes)) largest = other;
    return largest;
}

/* And of its tenants, p with n bytes more. */
static struct part *find_largest_part(struct holder *h, struct part *p, size_t n)
{
    struct part *largest = p;
    for (struct part *other = h->parts; other < h->parts + TENANT_GROUPS; other++)
        if (other->num_bytes > (largest == p ? p->num_bytes + n : largest->num_bytes)) largest = other;
    return largest;
}

/* For n bytes more in part p of h. */
static bool make_room(struct response_store *s, struct holder *h, struct part *p, size_t n)
{
    while (s->num_bytes + n > s->max_bytes) {
        struct holder *largest = find_largest(s, h, n);
        struct part *part =
            largest == h ? find_largest_part(h, p, n) : find_largest_part(largest, largest->parts, 0);
        if (!part->oldest) return false;
        drop_oldest(s, largest, part);
        if (largest != h) release_if_empty(s, largest);
    }
    return true;
}

static void insert(struct response_store *s, struct holder *h, struct part *p, struct record *r)
{
    *find(s, h->api_key_idx, r->id) = r;
    r->holder = h;
    r->part = p;
    r->older = p->newest;
    *(p->newest ? &p->newest->newer : &p->oldest) = r;
    p->newest = r;
    if (!p->untaken) p->untaken = r;
    s->num_untaken++;
    s->num_unfinished += is_unfinished(r);
    p->num_bytes += bytes_of(r);
    h->num_bytes += bytes_of(r);
    s->num_bytes += bytes_of(r);
}

/* False: it is not kept. */
static bool put(struct response_store *s, int api_key_idx, uint64_t tenant, struct record *r)
{
    struct holder *h = bytes_of(r) <= s->max_bytes ? holder_of(s, api_key_idx) : NULL;
    if (!h) return false;
    struct part *p = &h->parts[tenant_group(tenant)];
    struct record **before = find(s, api_key_idx, r->id);
    if (*before) drop(s, before);
    bool kept = make_room(s, h, p, bytes_of(r));
    if (kept) insert(s, h, p, r);
    release_if_empty(s, h);
    return kept;
}

void response_store_put(struct response_store *s, int api_key_idx, uint64_t tenant, const char *id,
                        const struct response_texts *texts)
{
    struct record *r = strlen(id) < RESPONSE_ID_BYTES ? make_record(id, texts) : NULL;
    if (!r) return;
    pthread_mutex_lock(&s->mutex);
    bool kept = put(s, api_key_idx, tenant, r);
    pthread_mutex_unlock(&s->mutex);
    if (!kept) free(r);
}

static char *copy_text(const struct record *r, enum response_text which, size_t *num_bytes)
{
    const char *from = r->bytes;
    char *copy = malloc(r->num_bytes[which] + 1);
    if (!copy) return NULL;
    for (int i = 0; i < (int)which; i++) from += r->num_bytes[i];
    *num_bytes = r->num_bytes[which];
    memcpy(copy, from, *num_bytes);
    copy[*num_bytes] = '\0';
    return copy;
}

char *response_store_get(struct response_store *s, int api_key_idx, const char *id, enum response_text which,
                         size_t *num_bytes)
{
    pthread_mutex_lock(&s->mutex);
    const struct record *r = *find(s, api_key_idx, id);
    char *copy = r && r->num_bytes[which] > 0 ? copy_text(r, which, num_bytes) : NULL;
    pthread_mutex_unlock(&s->mutex);
    return copy;
}

bool response_store_is_unfinished(struct response_store *s, int api_key_idx, const char *id)
{
    pthread_mutex_lock(&s->mutex);
    const struct record *r = *find(s, api_key_idx, id);
    const bool unfinished = r && is_unfinished(r);
    pthread_mutex_unlock(&s->mutex);
    return unfinished;
}

bool response_store_remove(struct response_store *s, int api_key_idx, const char *id)
{
    pthread_mutex_lock(&s->mutex);
    struct record **at = find(s, api_key_idx, id);
    bool found = *at != NULL;
    if (found) {
        struct holder *h = (*at)->holder;
        drop(s, at);
        release_if_empty(s, h);
    }
    pthread_mutex_unlock(&s->mutex);
    return found;
}

/* ---- for another process ---- */

static struct part *find_untaken(const struct response_store *s)
{
    for (struct holder *h = s->holders; h; h = h->next)
        for (struct part *p = h->parts; p < h->parts + TENANT_GROUPS; p++)
            if (p->untaken) return p;
    return NULL;
}

static bool copy_record(const struct record *r, struct stored_response *out)
{
    const size_t num_bytes = bytes_of(r) - sizeof *r, group = (size_t)(r->part - r->holder->parts);
    *out = (struct stored_response){.api_key_idx = r->holder->api_key_idx,
                                    .tenant = tenant_of_group(group),
                                    .bytes = malloc(num_bytes + 1)};
    if (!out->bytes) return false;
    memcpy(out->bytes, r->bytes, num_bytes);
    memcpy(out->id, r->id, sizeof out->id);
    memcpy(out->num_bytes, r->num_bytes, sizeof out->num_bytes);
    return true;
}

bool response_store_take(struct response_store *s, struct stored_response *out)
{
    pthread_mutex_lock(&s->mutex);
    struct part *p = s->num_untaken > 0 ? find_untaken(s) : NULL;
    const bool found = p && copy_record(p->untaken, out);
    if (found) {
        p->untaken->taken = true;
        p->untaken = p->untaken->newer;
        s->num_untaken--;
    }
    pthread_mutex_unlock(&s->mutex);
    return found;
}

int64_t response_store_num_untaken(struct response_store *s)
{
    pthread_mutex_lock(&s->mutex);
    const int64_t num = s->num_untaken;
    pthread_mutex_unlock(&s->mutex);
    return num;
}

int64_t response_store_num_unfinished(struct response_store *s)
{
    pthread_mutex_lock(&s->mutex);
    const int64_t num = s->num_unfinished;
    pthread_mutex_unlock(&s->mutex);
    return num;
}

#include "server/api/response_store.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { NUM_BUCKETS = 1024, ID_BYTES = 48 };

struct record {
    struct record *next_in_bucket;
    struct record *older, *newer;
    int api_key_idx;
    char id[ID_BYTES];
    size_t num_bytes[NUM_RESPONSE_TEXTS];
    char bytes[]; /* the texts, one behind the other */
};

struct response_store {
    pthread_mutex_t mutex;
    size_t num_bytes, max_bytes;
    struct record *oldest, *newest;
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

/* Where the pointer to the record stands, or to its bucket's end. */
static struct record **find(struct response_store *s, int api_key_idx, const char *id)
{
    uint32_t hash = 2166136261u;
    for (const char *c = id; *c; c++) hash = (hash ^ (unsigned char)*c) * 16777619u;
    struct record **at = &s->buckets[hash % NUM_BUCKETS];
    while (*at && ((*at)->api_key_idx != api_key_idx || strcmp((*at)->id, id) != 0))
        at = &(*at)->next_in_bucket;
    return at;
}

static void drop(struct response_store *s, struct record **at)
{
    struct record *r = *at;
    *at = r->next_in_bucket;
    *(r->older ? &r->older->newer : &s->oldest) = r->newer;
    *(r->newer ? &r->newer->older : &s->newest) = r->older;
    s->num_bytes -= bytes_of(r);
    free(r);
}

void response_store_destroy(struct response_store *s)
{
    if (!s) return;
    while (s->oldest) drop(s, find(s, s->oldest->api_key_idx, s->oldest->id));
    pthread_mutex_destroy(&s->mutex);
    free(s);
}

static struct record *make_record(int api_key_idx, const char *id, const struct response_texts *texts)
{
    struct record *r;
    size_t n = 0;
    for (int i = 0; i < NUM_RESPONSE_TEXTS; i++) n += texts->num_bytes[i];
    r = malloc(sizeof *r + n);
    if (!r) return NULL;
    *r = (struct record){.api_key_idx = api_key_idx};
    memcpy(r->id, id, strlen(id) + 1);
    char *to = r->bytes;
    for (int i = 0; i < NUM_RESPONSE_TEXTS; i++) {
        r->num_bytes[i] = texts->num_bytes[i];
        if (r->num_bytes[i] > 0) memcpy(to, texts->bytes[i], r->num_bytes[i]);
        to += r->num_bytes[i];
    }
    return r;
}

static void insert(struct response_store *s, struct record *r)
{
    struct record **at = find(s, r->api_key_idx, r->id);
    if (*at) drop(s, at);
    at = find(s, r->api_key_idx, r->id);
    *at = r;
    r->older = s->newest;
    *(s->newest ? &s->newest->newer : &s->oldest) = r;
    s->newest = r;
    s->num_bytes += bytes_of(r);
}

void response_store_put(struct response_store *s, int api_key_idx, const char *id,
                        const struct response_texts *texts)
{
    struct record *r = strlen(id) < ID_BYTES ? make_record(api_key_idx, id, texts) : NULL;
    if (!r) return;
    if (bytes_of(r) > s->max_bytes) {
        free(r);
        return;
    }
    pthread_mutex_lock(&s->mutex);
    while (s->num_bytes + bytes_of(r) > s->max_bytes) drop(s, find(s, s->oldest->api_key_idx, s->oldest->id));
    insert(s, r);
    pthread_mutex_unlock(&s->mutex);
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
    char *copy = r ? copy_text(r, which, num_bytes) : NULL;
    pthread_mutex_unlock(&s->mutex);
    return copy;
}

bool response_store_remove(struct response_store *s, int api_key_idx, const char *id)
{
    pthread_mutex_lock(&s->mutex);
    struct record **at = find(s, api_key_idx, id);
    bool found = *at != NULL;
    if (found) drop(s, at);
    pthread_mutex_unlock(&s->mutex);
    return found;
}

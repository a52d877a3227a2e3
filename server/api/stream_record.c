#include "server/api/stream_record.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "server/api/api.h"

enum {
    BODY_BYTES_MAX = 4 << 20,
    ALL_BODIES_BYTES_MAX = 64 << 20,
    STEPS_BYTES_MAX = 64 << 10,
    COUNT_MAX = 255,
};

struct stream_record *stream_record_create(struct api *api, const char *body, size_t body_bytes)
{
    if (body_bytes > BODY_BYTES_MAX || body_bytes > ALL_BODIES_BYTES_MAX - api->num_record_bytes) return NULL;
    struct stream_record *r = malloc(sizeof *r + body_bytes + 1);
    if (!r) return NULL;
    *r = (struct stream_record){.body_bytes = body_bytes};
    memcpy(r->body, body, body_bytes);
    r->body[body_bytes] = '\0';
    api->num_record_bytes += body_bytes;
    return r;
}

void stream_record_free(struct api *api, struct stream_record *r)
{
    if (!r) return;
    assert_debug(api->num_record_bytes >= r->body_bytes);
    api->num_record_bytes -= r->body_bytes;
    if (r->steps) buffer_deinit(r->steps);
    free(r->steps);
    free(r);
}

/* The last pair, if one more of this step goes into it. */
static uint8_t *last_pair(const struct stream_record *r, int step)
{
    if (r->steps->num_bytes == 0) return NULL;
    uint8_t *pair = (uint8_t *)r->steps->data + r->steps->num_bytes - 2;
    return pair[0] == step && pair[1] < COUNT_MAX ? pair : NULL;
}

static void add_pair(struct stream_record *r, int step, int count)
{
    buffer_append(r->steps, (const uint8_t[]){(uint8_t)step, (uint8_t)count}, 2);
}

/* False: no memory, or too many. */
static bool add_step(struct stream_record *r, int choice, int step)
{
    if (!r->steps) {
        r->steps = malloc(sizeof *r->steps);
        if (!r->steps) return false;
        buffer_init(r->steps, STEPS_BYTES_MAX);
    }
    if (choice != r->choice) add_pair(r, STEP_CHOICE, choice);
    r->choice = choice;
    uint8_t *pair = last_pair(r, step);
    if (pair)
        pair[1]++;
    else
        add_pair(r, step, 1);
    return !buffer_failed(r->steps);
}

void stream_record_step(struct api *api, struct stream_record **r, int choice, int step)
{
    assert_debug(step >= 0 && (step <= STEP_TOKENS_MAX || step >= STEP_PING));
    assert_debug(choice >= 0 && choice < RECORD_CHOICES_MAX);
    if (!*r || add_step(*r, choice, step)) return;
    stream_record_free(api, *r);
    *r = NULL;
}

/* Eight bytes at a time: nobody chooses them against it, it tells another program's from this one's. */
void stream_record_bytes(struct stream_record *r, const char *bytes, size_t n)
{
    if (!r) return;
    uint64_t digest = r->digest ^ n;
    for (size_t at = 0; at < n; at += sizeof digest) {
        uint64_t word = 0;
        memcpy(&word, bytes + at, min_of(n - at, sizeof word));
        digest = (digest ^ word) * 0x9E3779B97F4A7C15u;
        digest ^= digest >> 29;
    }
    r->digest = digest;
}

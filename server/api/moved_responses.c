#include "server/api/moved_responses.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/api/generation.h"
#include "server/api/moving.h"
#include "server/api/response_store.h"

enum { UNFINISHED_BYTES_MAX = 64 << 20, FILE_BYTES_MAX = 256 << 20 };

/* Behind it stand the texts. */
struct moved_response {
    uint64_t tenant;
    uint64_t num_bytes[NUM_RESPONSE_TEXTS];
    uint8_t has_key, key_digest[AUTH_DIGEST_BYTES];
    char id[RESPONSE_ID_BYTES];
};

/* ---- out ---- */

static void store_unfinished(struct generation *g)
{
    struct buffer body;
    buffer_init(&body, UNFINISHED_BYTES_MAX);
    codec_append(&body, EVENT_UNFINISHED, &g->answer, &(struct event){.error = NULL});
    const struct response_texts texts = {.bytes = {[RESPONSE_BODY] = body.data},
                                         .num_bytes = {[RESPONSE_BODY] = body.num_bytes}};
    if (!buffer_failed(&body))
        response_store_put(g->api->responses, g->api_key_idx, g->tenant, g->answer.id, &texts);
    buffer_deinit(&body);
}

void moved_responses_begin(struct server *server)
{
    for (struct generation *g = server->api->generations; g; g = g->next)
        if (g->in_background) store_unfinished(g);
}

static bool write_all(int fd, const void *bytes, size_t n)
{
    for (size_t done = 0; done < n;) {
        const ssize_t written = write(fd, (const char *)bytes + done, n - done);
        if (written <= 0) return false;
        done += (size_t)written;
    }
    return true;
}

static int write_file(const struct stored_response *r, const struct auth *auth)
{
    struct moved_response head = {.tenant = r->tenant, .has_key = r->api_key_idx >= 0};
    const int fd = memfd_create("flashd response", MFD_CLOEXEC);
    size_t num_bytes = 0;
    if (fd < 0) return -1;
    if (head.has_key) memcpy(head.key_digest, auth->digests[r->api_key_idx], AUTH_DIGEST_BYTES);
    memcpy(head.id, r->id, sizeof head.id);
    for (int i = 0; i < NUM_RESPONSE_TEXTS; i++) num_bytes += head.num_bytes[i] = r->num_bytes[i];
    if (write_all(fd, &head, sizeof head) && write_all(fd, r->bytes, num_bytes)) return fd;
    close(fd);
    return -1;
}

int moved_responses_next(struct server *server, const struct auth *auth)
{
    struct stored_response r;
    if (!response_store_take(server->api->responses, &r)) return -1;
    const int fd = write_file(&r, auth);
    free(r.bytes);
    return fd;
}

bool moved_responses_has_more(const struct server *server)
{
    struct response_store *store = server->api->responses;
    bool has_more = response_store_num_untaken(store) > 0 ||
                    (server->has_predecessor && response_store_num_unfinished(store) > 0);
    for (const struct generation *g = server->api->generations; g; g = g->next) has_more |= g->in_background;
    return has_more;
}

/* ---- in ---- */

static bool is_whole(const struct moved_response *head, size_t num_bytes)
{
    size_t n = sizeof *head;
    for (int i = 0; i < NUM_RESPONSE_TEXTS; i++) {
        if (head->num_bytes[i] > FILE_BYTES_MAX) return false;
        n += head->num_bytes[i];
    }
    return n == num_bytes && memchr(head->id, '\0', sizeof head->id);
}

static void keep(struct listener *listener, const char *bytes, size_t num_bytes)
{
    struct moved_response head;
    struct response_texts texts;
    int key_idx;
    memcpy(&head, bytes, sizeof head);
    if (!is_whole(&head, num_bytes) || !moving_find_key(listener, head.has_key, head.key_digest, &key_idx))
        return;
    bytes += sizeof head;
    for (int i = 0; i < NUM_RESPONSE_TEXTS; i++) {
        texts.bytes[i] = bytes;
        bytes += texts.num_bytes[i] = head.num_bytes[i];
    }
    response_store_put(listener->server->api->responses, key_idx, head.tenant, head.id, &texts);
}

void moved_responses_keep(struct listener *listener, int fd)
{
    struct stat st;
    if (fstat(fd, &st) || st.st_size < (off_t)sizeof(struct moved_response) || st.st_size > FILE_BYTES_MAX)
        return;
    void *bytes = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (bytes == MAP_FAILED) return;
    keep(listener, bytes, (size_t)st.st_size);
    munmap(bytes, (size_t)st.st_size);
}

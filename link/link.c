/* link.c - the region's life, and what is known of it.
 */
#include "link/link.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/check.h"
#include "link/region.h"

enum { REGION_ALIGNMENT = 4096 };

/* Where the parts lie, from the region's begin. */
struct layout {
    uint32_t ring_items;
    uint64_t ring, cancel_bits, mask_bits, silent, slots, total;
};

static struct request_slots_sizes sizes_of(const struct link_facts *facts)
{
    return (struct request_slots_sizes){facts->num_slots, facts->max_model_len, facts->vocab_size,
                                        facts->num_guess_tokens};
}

static bool layout_plan(const struct link_facts *facts, struct layout *out)
{
    const struct request_slots_sizes sizes = sizes_of(facts);
    uint64_t count = (uint64_t)facts->num_slots, bits_bytes, slots_bytes;
    out->ring_items = 1;
    while (out->ring_items < count) out->ring_items *= 2;
    out->ring = align_up(sizeof(struct region), REGION_ALIGNMENT);
    bits_bytes = align_up((uint64_t)div_up((int64_t)count, 64) * sizeof(uint64_t), 64);
    out->cancel_bits = align_up(out->ring + out->ring_items * sizeof(uint32_t), 64);
    out->mask_bits = out->cancel_bits + bits_bytes;
    out->silent = out->mask_bits + bits_bytes;
    out->slots =
        align_up(out->silent + (uint64_t)div_up(facts->vocab_size, 64) * sizeof(uint64_t), REGION_ALIGNMENT);
    slots_bytes = request_slots_bytes(&sizes);
    return slots_bytes > 0 && checked_add(out->slots, slots_bytes, &out->total) && out->total <= INT64_MAX;
}

/* ---- mapping ---- */

/* The old mapping, if any, stays when this fails. */
static int map(struct link *l, uint64_t bytes, struct error *err)
{
    char *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, l->fd, 0);
    if (base == MAP_FAILED)
        return error_set(err, STATUS_NO_MEMORY, "cannot map %llu bytes for request slots: %s",
                         (unsigned long long)bytes, strerror(errno));
    if (l->base) munmap(l->base, l->bytes);
    l->base = base;
    l->bytes = bytes;
    l->region = (struct region *)base;
    return 0;
}

static int attach(int fd, struct link **out, struct error *err)
{
    struct link *l = calloc(1, sizeof *l);
    if (!l) {
        close(fd);
        return error_set(err, STATUS_NO_MEMORY, "no memory for the engine's link");
    }
    l->fd = fd;
    int status = map(l, align_up(sizeof(struct region), REGION_ALIGNMENT), err);
    if (status) {
        link_destroy(l);
        return status;
    }
    *out = l;
    return 0;
}

int link_create(struct link **out, struct error *err)
{
    int fd = memfd_create("flashd link", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)align_up(sizeof(struct region), REGION_ALIGNMENT))) {
        int reason = errno;
        if (fd >= 0) close(fd);
        return error_set(err, STATUS_NO_MEMORY, "cannot make the engine's shared memory: %s",
                         strerror(reason));
    }
    int status = attach(fd, out, err);
    if (!status) link_set_text(*out, -1);
    return status;
}

int link_attach(int fd, struct link **out, struct error *err)
{
    int status = attach(fd, out, err);
    if (!status) (*out)->inherited = atomic_load(&(*out)->region->num_opened) > 0;
    return status;
}

int link_fd(const struct link *l)
{
    return l->fd;
}

void link_destroy(struct link *l)
{
    if (!l) return;
    request_slots_destroy(l->slots);
    free(l->listed);
    if (l->base) munmap(l->base, l->bytes);
    close(l->fd);
    free(l);
}

/* The parts behind the header, where the facts say that they are. */
static int map_parts(struct link *l, struct error *err)
{
    const struct link_facts facts = l->region->facts;
    const struct request_slots_sizes sizes = sizes_of(&facts);
    struct layout layout;
    if (l->slots) return 0;
    assert_always(layout_plan(&facts, &layout));
    l->listed = calloc((size_t)facts.num_slots, sizeof l->listed[0]);
    if (!l->listed)
        return error_set(err, STATUS_NO_MEMORY, "no memory for %d request slots", facts.num_slots);
    int status = map(l, layout.total, err);
    if (status) return status;
    l->submitted = ring_view(&l->region->submitted, (uint32_t *)(l->base + layout.ring), layout.ring_items);
    l->cancel_bits = (_Atomic uint64_t *)(l->base + layout.cancel_bits);
    l->mask_bits = (_Atomic uint64_t *)(l->base + layout.mask_bits);
    l->silent_ids = (uint64_t *)(l->base + layout.silent);
    return request_slots_create(l->base + layout.slots, &sizes, &l->slots, err);
}

static int make_room(struct link *l, const struct link_facts *facts, struct error *err)
{
    struct layout layout;
    if (layout_plan(facts, &layout) && ftruncate(l->fd, (off_t)layout.total) == 0) return 0;
    return error_set(err, STATUS_NO_MEMORY,
                     "cannot reserve %d request slots of %d tokens: %s (fewer with --max-num-seqs, "
                     "--max-queued-requests or --max-model-len)",
                     facts->num_slots, facts->max_model_len, strerror(errno));
}

static bool are_sizes_equal(const struct link_facts *a, const struct link_facts *b)
{
    return a->num_slots == b->num_slots && a->max_model_len == b->max_model_len &&
           a->vocab_size == b->vocab_size && a->num_guess_tokens == b->num_guess_tokens;
}

int link_open(struct link *l, const struct link_facts *facts, struct error *err)
{
    struct region *region = l->region;
    if (l->inherited && !are_sizes_equal(&region->facts, facts))
        return error_set(err, STATUS_INVALID, "the model or its limits are not what they were before");
    if (!l->inherited) {
        int status = make_room(l, facts, err);
        if (status) return status;
    }
    region->facts = *facts;
    atomic_fetch_add(&region->num_opened, 1);
    return map_parts(l, err);
}

bool link_is_inherited(const struct link *l)
{
    return l->inherited;
}

int link_join(struct link *l, struct error *err)
{
    assert_always(atomic_load(&l->region->num_opened) > 0);
    return map_parts(l, err);
}

/* ---- what is known ---- */

enum link_state link_state(const struct link *l)
{
    return (enum link_state)atomic_load_explicit(&l->region->state, memory_order_acquire);
}

void link_set_state(struct link *l, enum link_state state, const char *text)
{
    if (text) snprintf(l->region->error_text, sizeof l->region->error_text, "%s", text);
    atomic_store_explicit(&l->region->state, (int32_t)state, memory_order_release);
    link_wake_front(l);
}

void link_note_fault(struct link *l)
{
    atomic_store(&l->region->fault, true);
}

bool link_has_fault(const struct link *l)
{
    return atomic_load(&l->region->fault);
}

const char *link_error_text(const struct link *l)
{
    return l->region->error_text;
}

const struct link_facts *link_facts(const struct link *l)
{
    return &l->region->facts;
}

double *link_phase_seconds(struct link *l)
{
    return l->region->phase_seconds;
}

struct request_slots *link_slots(struct link *l)
{
    return l->slots;
}

struct link_counters *link_counters(struct link *l)
{
    return &l->region->counters;
}

void link_stats(const struct link *l, struct link_stats *out)
{
    link_counters_read(&l->region->counters, out);
}

void link_set_text(struct link *l, int32_t tokenizer_eos_id)
{
    atomic_store_explicit(&l->region->tokenizer_eos_id, tokenizer_eos_id, memory_order_relaxed);
}

int32_t link_tokenizer_eos_id(const struct link *l)
{
    return atomic_load_explicit(&l->region->tokenizer_eos_id, memory_order_relaxed);
}

void link_set_answer_header(struct link *l, const int32_t *ids, int32_t num_ids)
{
    assert_always(num_ids >= 0 && num_ids <= ANSWER_HEADER_MAX);
    if (num_ids > 0) memcpy(l->region->answer_header, ids, (size_t)num_ids * sizeof(ids[0]));
    atomic_store_explicit(&l->region->num_answer_header, num_ids, memory_order_release);
}

int32_t link_answer_header(const struct link *l, int32_t *ids)
{
    int32_t num_ids = atomic_load_explicit(&l->region->num_answer_header, memory_order_acquire);
    assert_always(num_ids >= 0 && num_ids <= ANSWER_HEADER_MAX);
    memcpy(ids, l->region->answer_header, (size_t)num_ids * sizeof(ids[0]));
    return num_ids;
}

uint64_t *link_silent_ids(struct link *l)
{
    return l->silent_ids;
}

/* ---- to the front ---- */

void link_set_front_wake(struct link *l, void (*wake)(void *context), void *context)
{
    l->wake_front = wake;
    l->wake_context = context;
}

void link_wake_front(struct link *l)
{
    if (l->wake_front) l->wake_front(l->wake_context);
}

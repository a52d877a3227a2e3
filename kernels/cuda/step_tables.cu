/* step_tables.cu - the block tables of a step as the device gets them: those of all sequences one after another, group by group
 * of layers (struct step, G).
 *
 * Kernels walk keys by tiles of up to TILE_PAGES, from the one on that has the first key which is seen. So where a window or a chunk
 * hides what came before, a table begins where the earliest of such tiles could, and is found by where the entry of token 0 would be:
 *
 *   blocks        0 1 2 3 4 5 6 7 8 9 10 11 12      of which 11 and 12 are seen, by tiles of up to 8
 *   table                 Z Z Z Z Z Z Z  11 12
 *   table_offsets ^
 *
 * Z is a block of zeros: what has been passed may be anybody's, and a NaN there would not be hidden by its weight, which is 0.
 * Rows of one decoding sequence share a table: this tells attention that they are. */
#include <string.h>

#include <algorithm>

#include "kernels/cuda/attention_decode.cuh"
#include "kernels/cuda/attention_prefill.cuh"

namespace
{

const int32_t TILE_PAGES = PREFILL_KV_TILE_MAX / BLOCK_SIZE;
static_assert(KV_TILE_PAGES <= TILE_PAGES, "tiles of decoding are no larger");

/* A sequence's entries [begin, end), of which those from first on are seen. */
struct span {
    int32_t begin, first, end;
};

int32_t first_key(const struct kv_reach *reach, int32_t place)
{
    return mask_first_key(reach->sliding_window, reach->chunk, place);
}

struct span span_of(const struct step *step, int32_t seq, const struct kv_reach *reach)
{
    int32_t place = step->seqlens_k[seq] - (step->cu_seqlens_q[seq + 1] - step->cu_seqlens_q[seq]);
    struct span s;
    s.end = (int32_t)div_up(step->seqlens_k[seq], BLOCK_SIZE);
    s.first = first_key(reach, place) / BLOCK_SIZE;
    s.begin = std::max(s.first - (TILE_PAGES - 1), 0);
    return s;
}

size_t group_words_max(const struct cuda_device *d, const struct kv_reach *reach)
{
    int64_t whole = d->limits.max_model_len / BLOCK_SIZE + 1, seqs = d->limits.num_seqs;
    int32_t hides = std::max(reach->sliding_window, reach->chunk);
    if (hides == 0) return (size_t)(seqs * whole);
    int64_t each = hides / BLOCK_SIZE + TILE_PAGES + 3; /* one of them between two sequences */
    return (size_t)std::min(seqs * (whole + 1), seqs * each + d->limits.num_tokens / BLOCK_SIZE);
}

} // namespace

bool cuda_goes_on(const struct cuda_device *d, const struct step *step, int32_t seq)
{
    if (seq <= step->num_prefill_seqs) return false;
    int32_t before = step->seqlens_k[seq - 1] - 1, group = 0;
    if (step->seqlens_k[seq] != before + 2) return false;
    while (group < d->num_kv_groups && first_key(&d->kv_reach[group], before + 1) > before) group++;
    if (group == d->num_kv_groups) return false; /* all the same to it */
    const int32_t *table = step_block_tables(step, group) + (size_t)seq * (size_t)step->block_table_stride;
    return table[before / BLOCK_SIZE] * BLOCK_SIZE + before % BLOCK_SIZE ==
           step_slot_mapping(step, group)[step->cu_seqlens_q[seq - 1]];
}

void cuda_tables_prepare(struct cuda_device *d, const struct attention_args *layers, int32_t num_layers)
{
    bool is_known[KV_GROUPS_MAX] = {};
    d->num_kv_groups = std::max(d->limits.num_kv_groups, 1);
    assert_always(d->num_kv_groups <= KV_GROUPS_MAX);
    for (int32_t i = 0; i < num_layers; i++) {
        const struct attention_args *a = &layers[i];
        struct kv_reach *reach = &d->kv_reach[a->kv_group];
        assert_always(a->kv_group >= 0 && a->kv_group < d->num_kv_groups);
        bool differs = reach->sliding_window != a->sliding_window || reach->chunk != a->chunk;
        if (!is_known[a->kv_group])
            *reach = {a->sliding_window, a->chunk};
        else if (differs)
            *reach = {0, 0};
        is_known[a->kv_group] = true;
    }
}

size_t cuda_tables_words_max(const struct cuda_device *d)
{
    size_t words = 0;
    for (int32_t g = 0; g < d->num_kv_groups; g++) words += group_words_max(d, &d->kv_reach[g]);
    return words;
}

size_t cuda_tables_pack(const struct cuda_device *d, const struct step *step, int32_t group, int32_t zeros,
                        int32_t *offsets, int32_t *tables, size_t at)
{
    for (int32_t s = 0; s < step->num_seqs; s++) {
        const int32_t *from = step_block_tables(step, group) + (size_t)s * (size_t)step->block_table_stride;
        struct span span = span_of(step, s, &d->kv_reach[group]);
        if (cuda_goes_on(d, step, s)) {
            offsets[s] = offsets[s - 1];
        } else {
            offsets[s] = (int32_t)at - span.begin;
            if (s > 0 && offsets[s] == offsets[s - 1]) { /* they are not one sequence */
                tables[at] = zeros;
                offsets[s]++;
            }
            for (int32_t i = span.begin; i < span.first; i++) tables[offsets[s] + i] = zeros;
        }
        memcpy(tables + offsets[s] + span.first, from + span.first, (size_t)(span.end - span.first) * 4);
        at = (size_t)(offsets[s] + span.end);
    }
    return at;
}

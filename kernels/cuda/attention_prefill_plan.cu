/* attention_prefill_plan.cu - host side of prefill attention: its items, in which order, and whose keys are cut.
 *
 * An item is a tile of query rows of one head; CTAs take items from a queue in its order, each the next one as it begins with
 * one. Where a step has few tiles and they see many keys, an item too many makes attention twice as long: 5 tiles of 32 heads
 * are 160 items for 132 SMs, and take as long as 8 tiles. So tiles may be cut: the pieces that their keys are walked in anyway
 * (attention_prefill_hopper.cu) are items of their own then, as long as there are slots for their results. For each long
 * sequence three ways are gone through, and the one that ends first is taken: no tile cut, all, and those alone that are left
 * over when every SM has as many whole ones as there are for all. */
#include <algorithm>
#include <numeric>

#include "kernels/cuda/attention_prefill.cuh"

namespace
{

const size_t L2_BYTES = (size_t)24 << 20; /* about half of an H200's */

/* What an item takes beside its keys, in keys (12 ns): looking it up, Q's arrival, filling and emptying the rings; of a piece
 * its result's way to memory and back, too. */
enum { ITEM_KEYS = 256, PIECE_KEYS = 768 };

enum { ROUNDS_MAX = 8 }; /* of items: with more, what the last of them leaves idle matters no more */

/* K/V heads that are worked on at a time: K and V of so many of the longest sequence should stay in the L2 while tile after tile
 * reads them. */
int32_t choose_kv_heads_per_tile(const struct cuda_device *d, const struct step *step)
{
    const struct attention_args *a = &d->prompt_attention;
    int32_t longest = 0, kv_heads = a->num_kv_heads;
    for (int32_t s = 0; s < step->num_prefill_seqs; s++) longest = std::max(longest, step->seqlens_k[s]);
    size_t head_bytes = (size_t)longest * (size_t)a->head_dim * 4;
    while (kv_heads > 1 && (a->num_kv_heads % kv_heads != 0 || (size_t)kv_heads * head_bytes > L2_BYTES))
        kv_heads--;
    return kv_heads;
}

/* Rows of a tile, and keys of a piece. */
struct tiling {
    int32_t rows, piece;
};

/* Query heads of a K/V head, in the layer that has most: no other one takes more slots. */
int32_t group_of(const struct cuda_device *d)
{
    return d->prompt_attention.num_heads / d->prompt_attention.num_kv_heads;
}

struct tiling tiling_of(const struct cuda_device *d)
{
    return tiling{d->base.prefill_tile, prefill_piece_tokens(d->prompt_attention.head_dim)};
}

int32_t num_rows(const struct step *step, int32_t seq)
{
    return step->cu_seqlens_q[seq + 1] - step->cu_seqlens_q[seq];
}

/* Of a tile's last row. */
int32_t keys_seen(const struct step *step, struct tiling g, int32_t seq, int32_t first_row)
{
    int32_t rows = num_rows(step, seq);
    return step->seqlens_k[seq] - rows + std::min(first_row + g.rows, rows);
}

/* Into which a tile's keys are cut, if they are. */
int32_t num_pieces_of(const struct step *step, struct tiling g, int32_t seq, int32_t first_row)
{
    return (int32_t)div_up(keys_seen(step, g, seq, first_row), g.piece);
}

/* That an item walks. */
int32_t keys_of(const struct step *step, struct tiling g, const struct prefill_tile &t)
{
    int32_t seen = keys_seen(step, g, t.seq, t.first_row);
    return t.num_pieces == 1 ? seen : std::min(seen - t.piece * g.piece, g.piece);
}

/* Whole tiles, then pieces, and those last that are shorter than others. */
int32_t class_of(const struct step *step, struct tiling g, const struct prefill_tile &t)
{
    if (t.num_pieces == 1) return 0;
    return keys_of(step, g, t) == g.piece ? 1 : 2;
}

/* The order of a batch's items: by heads, so that their keys stay in the L2, but for the shortest; and there what walks the
 * most keys first. */
bool comes_before(const struct step *step, struct tiling g, const struct prefill_tile &x,
                  const struct prefill_tile &y)
{
    int32_t class_x = class_of(step, g, x), class_y = class_of(step, g, y);
    if (class_x != class_y) return class_x < class_y;
    if (class_x < 2 && x.first_kv_head != y.first_kv_head) return x.first_kv_head < y.first_kv_head;
    int32_t keys_x = keys_of(step, g, x), keys_y = keys_of(step, g, y);
    if (keys_x != keys_y) return keys_x > keys_y;
    if (x.seq != y.seq) return x.seq < y.seq;
    if (x.first_kv_head != y.first_kv_head) return x.first_kv_head < y.first_kv_head;
    return x.first_row != y.first_row ? x.first_row > y.first_row : x.piece < y.piece;
}

/* Sequences from the longest on, in batches whose K and V stay in the L2 while they are read again and again. */
int32_t pack(const struct cuda_device *d, const struct step *step, struct prefill_plan *plan,
             int32_t kv_heads_per_tile, struct prefill_tile *tiles)
{
    const struct attention_args *a = &d->prompt_attention;
    const struct tiling g = tiling_of(d);
    const size_t key_bytes = (size_t)kv_heads_per_tile * a->head_dim * 4;
    const int32_t heads_per_tile = kv_heads_per_tile * group_of(d);
    int32_t n = 0, num_slots = 0;
    for (size_t begin = 0, end; begin < plan->order.size(); begin = end) {
        size_t bytes = 0;
        int32_t first_tile = n;
        for (end = begin; end < plan->order.size(); end++) {
            int32_t s = plan->order[end];
            bytes += step->seqlens_k[s] * key_bytes;
            if (end > begin && bytes > L2_BYTES) break;
            for (int32_t first = 0; first < num_rows(step, s); first += g.rows) {
                int32_t pieces = num_pieces_of(step, g, s, first);
                if (first / g.rows < plan->num_whole[(size_t)s]) pieces = 1;
                for (int32_t head = 0; head < a->num_kv_heads; head += kv_heads_per_tile) {
                    for (int32_t piece = 0; piece < pieces; piece++)
                        tiles[n++] = prefill_tile{s, first, head, piece, pieces, num_slots};
                    num_slots += pieces > 1 ? pieces * heads_per_tile : 0;
                }
            }
        }
        std::sort(tiles + first_tile, tiles + n,
                  [=](const struct prefill_tile &x, const struct prefill_tile &y) {
                      return comes_before(step, g, x, y);
                  });
    }
    return n;
}

/* When the last CTA is done with the queue, in keys. */
int64_t end_of(const struct cuda_device *d, const struct step *step, struct prefill_plan *plan,
               int32_t kv_heads_per_tile, const struct prefill_tile *tiles, int32_t num_tiles)
{
    const struct tiling g = tiling_of(d);
    const int32_t heads_per_tile = kv_heads_per_tile * group_of(d), num_items = num_tiles * heads_per_tile;
    int32_t taken = 0;
    int64_t end = 0;
    auto take = [&]() { return taken < num_items ? taken++ : -1; };
    auto later = [](const struct prefill_cta &x, const struct prefill_cta &y) { return x.at > y.at; };
    plan->ctas.clear();
    for (int32_t i = 0; i < d->num_sms; i++) plan->ctas.push_back(prefill_cta{0, take()});
    while (!plan->ctas.empty()) { /* a heap: who begins next is the first */
        std::pop_heap(plan->ctas.begin(), plan->ctas.end(), later);
        struct prefill_cta *cta = &plan->ctas.back();
        if (cta->item < 0) {
            end = std::max(end, cta->at);
            plan->ctas.pop_back();
            continue;
        }
        const struct prefill_tile &t = tiles[cta->item / heads_per_tile];
        cta->at += keys_of(step, g, t) + (t.num_pieces > 1 ? PIECE_KEYS : ITEM_KEYS);
        cta->item = take();
        std::push_heap(plan->ctas.begin(), plan->ctas.end(), later);
    }
    return end;
}

int32_t num_tiles_of(const struct cuda_device *d, const struct step *step, int32_t seq)
{
    return (int32_t)div_up(num_rows(step, seq), d->base.prefill_tile);
}

/* Slots that a sequence takes when its first num_whole tiles are not cut. */
int64_t num_slots_of(const struct cuda_device *d, const struct step *step, int32_t seq, int32_t num_whole)
{
    const struct tiling g = tiling_of(d);
    int64_t n = 0;
    for (int32_t tile = num_whole; tile < num_tiles_of(d, step, seq); tile++)
        n += num_pieces_of(step, g, seq, tile * g.rows);
    return n * d->prompt_attention.num_heads;
}

/* Of all tiles of the step, this sequence's last ones are what does not fit into whole rounds. */
int32_t num_in_rounds(const struct cuda_device *d, int32_t num_tiles_all, int32_t num_tiles)
{
    int32_t num_items = num_tiles_all * d->prompt_attention.num_heads, num_left = num_items % d->num_sms;
    return std::max(num_tiles - (int32_t)div_up(num_left, d->prompt_attention.num_heads), 0);
}

} // namespace

void cuda_prefill_plan_prepare(const struct cuda_device *d, struct prefill_plan *plan)
{
    plan->order.reserve((size_t)d->limits.num_seqs);
    plan->num_whole.reserve((size_t)d->limits.num_seqs);
    plan->ctas.reserve((size_t)d->num_sms);
}

int32_t cuda_prefill_plan(const struct cuda_device *d, const struct step *step, struct prefill_plan *plan,
                          struct prefill_tile *tiles, int32_t *kv_heads_per_tile)
{
    const int32_t *keys = step->seqlens_k;
    int32_t num_tiles_all = 0;
    *kv_heads_per_tile = choose_kv_heads_per_tile(d, step);
    plan->order.resize((size_t)step->num_prefill_seqs);
    plan->num_whole.resize((size_t)step->num_prefill_seqs);
    std::iota(plan->order.begin(), plan->order.end(), 0);
    std::sort(plan->order.begin(), plan->order.end(),
              [keys](int32_t x, int32_t y) { return keys[x] != keys[y] ? keys[x] > keys[y] : x < y; });
    for (int32_t seq : plan->order)
        num_tiles_all += plan->num_whole[(size_t)seq] = num_tiles_of(d, step, seq);
    int32_t n = pack(d, step, plan, *kv_heads_per_tile, tiles);
    int64_t slots_left = d->num_prefill_slots;
    if ((int64_t)num_tiles_all * d->prompt_attention.num_heads > (int64_t)ROUNDS_MAX * d->num_sms) return n;
    int64_t end = -1; /* of the plan as it stands */
    for (int32_t seq : plan->order) {
        if (keys[seq] <= tiling_of(d).piece) break;
        int32_t *num_whole = &plan->num_whole[(size_t)seq], num_tiles = *num_whole, best = num_tiles;
        if (end < 0) end = end_of(d, step, plan, *kv_heads_per_tile, tiles, n);
        for (int32_t whole : {num_in_rounds(d, num_tiles_all, num_tiles), 0}) {
            if (whole == num_tiles || num_slots_of(d, step, seq, whole) > slots_left) continue;
            *num_whole = whole;
            n = pack(d, step, plan, *kv_heads_per_tile, tiles);
            int64_t this_end = end_of(d, step, plan, *kv_heads_per_tile, tiles, n);
            if (this_end < end) best = whole;
            end = std::min(end, this_end);
        }
        if (*num_whole != best) {
            *num_whole = best;
            n = pack(d, step, plan, *kv_heads_per_tile, tiles);
        }
        slots_left -= num_slots_of(d, step, seq, best);
    }
    return n;
}

/* attention_decode_plan.cu - host side of decode attention: how much memory it takes, and who walks what.
 *
 * Every CTA begins with one range and takes further ones from a queue as it comes to the end of its own. Ranges go from
 * large to small, because SMs do not get equal shares of the memory. */
#include <algorithm>

#include "kernels/cuda/attention_decode.cuh"

enum {
    RANGES_PER_CTA = 8,
    RANGE_PAGES_MIN = 16
};

bool cuda_attention_supports(int32_t head_dim)
{
    return head_dim == 64 || head_dim == 80 || head_dim == 96 || head_dim == 128 || head_dim == 256;
}

/* Items of a sequence and split: K/V heads times tiles of query heads. */
int32_t cuda_decode_heads(const struct attention_args *a)
{
    return a->num_kv_heads * ((decode_group(a) + DECODE_TILE_ROWS - 1) / DECODE_TILE_ROWS);
}

size_t cuda_decode_partial_floats(const struct step_limits *limits, const struct attention_args *args)
{
    return (size_t)limits->num_seqs * SPLITS_MAX * cuda_decode_heads(args) * decode_partial_floats(args);
}

size_t cuda_decode_counters(const struct step_limits *limits, const struct attention_args *args)
{
    return (size_t)limits->num_seqs * cuda_decode_heads(args) * DECODE_FOLDERS;
}

int32_t cuda_decode_ctas(const struct cuda_device *d, const struct attention_args *a)
{
    return d->num_sms * decode_ctas_per_sm(a->head_dim);
}

int32_t cuda_decode_ranges_max(const struct cuda_device *d, const struct attention_args *a)
{
    return cuda_decode_ctas(d, a) * RANGES_PER_CTA;
}

/* The decoding sequences of a step: what there is to walk. */
struct work {
    const struct step *step;
    int64_t heads; /* of a sequence */
    int32_t window;
    int64_t num_pages, num_items, num_heads;

    work(const struct cuda_device *d, const struct step *s) : step(s), heads(cuda_decode_heads(&d->attention))
    {
        window = d->attention.sliding_window;
        num_pages = num_items = 0;
        num_heads = heads * (step->num_seqs - step->num_prefill_seqs);
        for (int32_t seq = step->num_prefill_seqs; seq < step->num_seqs; seq++) {
            struct cut c = cut_of(step->seqlens_k[seq], window);
            num_pages += heads * pages_of(c);
            num_items += heads * (c.end_split - c.first_split);
        }
    }

    /* Of one head. */
    static int64_t pages_of(const struct cut &c) { return c.num_pages - c.first_split * c.pages_per_split; }

    int64_t pages_of_last(int64_t num) const
    {
        int64_t pages = 0;
        for (int32_t seq = step->num_seqs - 1; num > 0 && seq >= step->num_prefill_seqs; seq--, num -= heads)
            pages += std::min(num, heads) * pages_of(cut_of(step->seqlens_k[seq], window));
        return pages;
    }
};

/* Positions at which ranges begin, from large ranges to small ones: each takes its CTA's share of two thirds of what is
 * left. In pages, or in items where there is no more than one for a CTA.
 *
 * A head that more than one CTA walks costs partial results, and each of them a start of its own, so heads stay whole as long
 * as what is left, or the round of heads that all CTAs will begin last, keeps the SMs busy. */
struct cutter {
    int64_t total, num_ctas, busy_ctas;
    int64_t last_round; /* pages of that round, 0 where it is too small */
    int64_t num_left;   /* ranges that may still begin */
    bool by_items;
    int64_t next, size; /* size: of the range that ends there */

    cutter(const struct cuda_device *d, const struct work &w) : next(0), size(0)
    {
        num_ctas = cuda_decode_ctas(d, &d->attention);
        busy_ctas = d->num_sms - d->num_sms / 8; /* one an SM is enough */
        by_items = w.num_items <= num_ctas;
        total = by_items ? w.num_items : w.num_pages;
        num_left = cuda_decode_ranges_max(d, &d->attention);
        int64_t num_last = w.num_heads % num_ctas;
        last_round = num_last >= busy_ctas ? w.pages_of_last(num_last) : 0;
    }

    /* head_pages: of the head that next is in. */
    void advance(int64_t head_pages)
    {
        int64_t left = total - next;
        size = left * 2 / (3 * num_ctas);
        num_left--;
        if (size < RANGE_PAGES_MIN) size = RANGE_PAGES_MIN;
        if (size < head_pages && head_pages * busy_ctas <= std::max(left, last_round)) size = head_pages;
        if (num_left > 0 && size * num_left < left) size = (left + num_left - 1) / num_left;
        next += by_items ? 1 : num_left > 0 ? size : left;
    }
};

/* Cuts the step's items into ranges. Returns their number. */
int32_t cuda_decode_plan(const struct cuda_device *d, const struct step *step, struct decode_range *ranges)
{
    struct work work(d, step);
    struct cutter cutter(d, work);
    int64_t heads = work.heads, before = 0, items_before = 0, first_item = 0; /* of this sequence; of the newest range */
    int32_t n = 0;
    for (int32_t s = step->num_prefill_seqs; s < step->num_seqs; s++) {
        struct cut c = cut_of(step->seqlens_k[s], work.window);
        int64_t splits = c.end_split - c.first_split, pages = work::pages_of(c);
        int64_t per_head = cutter.by_items ? splits : pages;
        for (; cutter.next < before + heads * per_head; cutter.advance(pages)) {
            int64_t at = cutter.next - before;
            if (!cutter.by_items && cutter.size >= pages) at -= at % pages; /* a range of a whole head begins where one does */
            int64_t split = cutter.by_items ? at % splits : at % pages / c.pages_per_split;
            int64_t item = items_before + at / per_head * splits + split;
            if (n > 0 && item == first_item) continue; /* the range before would be empty */
            if (n > 0) ranges[n - 1].num_items = (int32_t)(item - first_item);
            ranges[n++] = decode_range{s, (int32_t)(at / per_head), c.first_split + (int32_t)split, 0};
            first_item = item;
        }
        before += heads * per_head;
        items_before += heads * splits;
    }
    if (n > 0) ranges[n - 1].num_items = (int32_t)(work.num_items - first_item);
    return n;
}

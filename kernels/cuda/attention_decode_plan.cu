/* attention_decode_plan.cu - host side of decode attention: how much memory it takes, and who walks what.
 *
 * Every CTA begins with one range and takes further ones from a queue as it comes to the end of its own. Ranges go from
 * large to small, because SMs do not get equal shares of the memory. */
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

/* Positions at which ranges begin, from large ranges to small ones: each takes its CTA's share of two thirds of what is
 * left. In pages, or in items where there is no more than one for a CTA. */
struct cutter {
    int64_t total, next, num_ctas, size; /* size: of the range that begins at next */
    int64_t num_left; /* ranges that may still begin */
    bool by_items;

    void advance(void)
    {
        int64_t left = total - next;
        size = left * 2 / (3 * num_ctas);
        num_left--;
        if (size < RANGE_PAGES_MIN) size = RANGE_PAGES_MIN;
        if (num_left > 0 && size * num_left < left) size = (left + num_left - 1) / num_left;
        next += by_items ? 1 : num_left > 0 ? size : left;
    }
};

/* Cuts the step's items into ranges. Returns their number. */
int32_t cuda_decode_plan(const struct cuda_device *d, const struct step *step, struct decode_range *ranges)
{
    const struct attention_args *a = &d->attention;
    int64_t heads = cuda_decode_heads(a), num_pages = 0, num_items = 0;
    for (int32_t s = step->num_prefill_seqs; s < step->num_seqs; s++) {
        struct cut c = cut_of(step->seqlens_k[s], a->sliding_window);
        num_pages += heads * (c.num_pages - c.first_split * c.pages_per_split);
        num_items += heads * (c.end_split - c.first_split);
    }
    int32_t num_ctas = cuda_decode_ctas(d, a);
    bool by_items = num_items <= num_ctas;
    struct cutter cutter = {by_items ? num_items : num_pages, 0, num_ctas, 0, cuda_decode_ranges_max(d, a), by_items};
    int64_t before = 0, items_before = 0, first_item = 0; /* of this sequence; of the newest range */
    int32_t n = 0;
    for (int32_t s = step->num_prefill_seqs; s < step->num_seqs; s++) {
        struct cut c = cut_of(step->seqlens_k[s], a->sliding_window);
        int64_t splits = c.end_split - c.first_split, pages = c.num_pages - c.first_split * c.pages_per_split;
        int64_t per_head = by_items ? splits : pages;
        for (; cutter.next < before + heads * per_head; cutter.advance()) {
            int64_t at = cutter.next - before;
            if (!by_items && cutter.size >= pages) at -= at % pages; /* a range of a whole head begins where one does */
            int64_t split = by_items ? at % splits : at % pages / c.pages_per_split;
            int64_t item = items_before + at / per_head * splits + split;
            if (n > 0 && item == first_item) continue; /* the range before would be empty */
            if (n > 0) ranges[n - 1].num_items = (int32_t)(item - first_item);
            ranges[n++] = decode_range{s, (int32_t)(at / per_head), c.first_split + (int32_t)split, 0};
            first_item = item;
        }
        before += heads * per_head;
        items_before += heads * splits;
    }
    if (n > 0) ranges[n - 1].num_items = (int32_t)(num_items - first_item);
    return n;
}

/* attention_decode_plan.cu - host side of decode attention: how much memory it takes, and who walks what.
 *
 * Every team begins with one range and takes further ones from a queue as it comes to the end of its own: SMs do not get
 * equal shares of the memory.
 *
 * An example: 2 K/V heads, sequences a, b, c of 600, 2,000 and 100 tokens, which are 38, 125 and 7 pages. A split has 16 pages
 * here, so a head of a has 3 items, one of b 8, one of c 1, and the step 24 items of 340 pages.
 *
 *   8 teams, 2 on each of 4 SMs, get 24 / 8 = 3 items each: 3 * 16 pages are no more than 5/4 of a team's share, 42.5. There is
 *   no queue (a0 is head 0 of a, and behind it are the splits):
 *
 *     a0 0-2 | a1 0-2 | b0 0-2 | b0 3-5 | b0 6-7, b1 0 | b1 1-3 | b1 4-6 | b1 7, c0 0, c1 0
 *
 *   4 teams, 2 on each of 2 SMs: there is enough to do to leave heads whole, since two of the longest have 250 of the 340 pages.
 *   So positions are pages, a0 from 0, a1 38, b0 76, b1 201, c0 326, c1 333 to 340, and a range has 2 / (3 * 4) of what is left
 *   at its beginning, but at least 16:
 *
 *     left                     340    284    237   198   165     138   115    96    80    64    48    32    16
 *     the range has             56     47     39    33    27      23    19    16    16    16    16    16    16
 *     the next begins at        56    103    142   175   202     225   244   260   276   292   308   324   340
 *     which is page          a1 18  b0 27  b0 66    99  b1 1      24    43    59    75    91   107   123   the end
 *     so it takes splits from  a1 0   b0 1   b0 4     6  b1 0       1     2     3     4     5     6     7
 *
 *   Page 18 of a1 would be in its split 1; but a range that has as much as a whole head of its sequence begins where one does.
 *   b0 is not left whole: at 103 two heads like it would be more than the 237 that are left. The first 4 ranges are the teams'
 *   own, the other 9 are queued, smaller and smaller; c comes with the last one. */
#include <algorithm>

#include "kernels/cuda/attention_decode.cuh"

namespace
{

enum { RANGES_PER_TEAM = 8, RANGE_PAGES_MIN = 16 };
/* Of a step, from which on rows of one sequence are bundled. */
enum { BUNDLED_ROWS = 33, BUNDLED_KEYS = 8192 };

} // namespace

/* Items of a sequence and split: K/V heads times tiles of query heads. */
int32_t cuda_decode_heads(const struct attention_args *a)
{
    return a->num_kv_heads * ((decode_group(a) + DECODE_TILE_ROWS - 1) / DECODE_TILE_ROWS);
}

int32_t cuda_all_decode_heads(const struct attention_args *a)
{
    const struct attention_args all = cuda_attention_of_all(a);
    return cuda_decode_heads(&all);
}

size_t cuda_decode_partial_floats(const struct step_limits *limits, const struct attention_args *args)
{
    return (size_t)limits->num_seqs * SPLITS_MAX * cuda_decode_heads(args) * decode_partial_floats(args);
}

size_t cuda_decode_counters(const struct step_limits *limits, const struct attention_args *args)
{
    return (size_t)limits->num_seqs * cuda_decode_heads(args) * MERGE_WARPS;
}

int32_t cuda_decode_teams(const struct cuda_device *d, const struct attention_args *a)
{
    return d->num_sms * decode_teams_per_sm(a->head_dim);
}

int32_t cuda_decode_ranges_max(const struct cuda_device *d, const struct attention_args *a)
{
    return cuda_decode_teams(d, a) * RANGES_PER_TEAM;
}

/* Kernels of e4m3 have none, nor do more query heads than fit into a tile. */
int32_t cuda_decode_bundle_max(const struct attention_args *a, bool has_codes)
{
    return has_codes ? 1 : std::max(DECODE_TILE_ROWS / decode_group(a), 1);
}

/* Steps with bundles are not recorded: a draft of few rows behind few tokens is read row by row. */
int32_t cuda_decode_bundle(const struct cuda_device *d, const struct step *step)
{
    int32_t most = d->base.decode_bundle, num_rows = 0, num_keys = 0;
    for (int32_t seq = step->num_prefill_seqs; most > 1 && seq < step->num_seqs; seq++) {
        if (!cuda_goes_on(d, step, seq)) continue;
        num_keys += std::min(step->seqlens_k[seq], BUNDLED_KEYS - num_keys);
        if (++num_rows == BUNDLED_ROWS || num_keys == BUNDLED_KEYS) return most;
    }
    return 1;
}

namespace
{

/* The decoding sequences of a step, of bundled ones the first: what there is to walk. */
struct work {
    const struct cuda_device *device;
    const struct step *step;
    int64_t heads; /* of a sequence */
    int32_t splits_most, window, bundle;
    int64_t num_pages, num_items, num_heads, head_pages_max, item_pages_max;

    work(const struct cuda_device *d, const struct step *s, int32_t sliding_window, int32_t most)
        : device(d), step(s), heads(cuda_decode_heads(&d->attention)),
          splits_most(splits_most_of(cuda_all_decode_heads(&d->attention))), window(sliding_window),
          bundle(most)
    {
        num_pages = num_items = num_heads = head_pages_max = item_pages_max = 0;
        for (int32_t seq = step->num_prefill_seqs; seq < step->num_seqs; seq++) {
            if (is_walked_before(seq)) continue;
            struct cut c = cut(seq);
            num_heads += heads;
            assert_always(c.first_split < c.end_split && c.end_split - c.first_split <= SPLITS_MAX);
            num_pages += heads * pages_of(c);
            num_items += heads * (c.end_split - c.first_split);
            head_pages_max = std::max(head_pages_max, pages_of(c));
            item_pages_max = std::max(item_pages_max, (int64_t)c.pages_per_split);
        }
    }

    struct cut cut(int32_t seq) const { return cut_of(step->seqlens_k[seq], window, splits_most); }

    /* With the sequence before it. */
    bool is_walked_before(int32_t seq) const
    {
        return bundle > 1 && is_bundled(step->seqlens_k[seq], bundle, window) &&
               cuda_goes_on(device, step, seq);
    }

    /* Of one head. */
    static int64_t pages_of(const struct cut &c) { return c.num_pages - c.first_page; }

    int64_t pages_of_last(int64_t num) const
    {
        int64_t pages = 0;
        for (int32_t seq = step->num_seqs - 1; num > 0 && seq >= step->num_prefill_seqs; seq--) {
            if (is_walked_before(seq)) continue;
            pages += std::min(num, heads) * pages_of(cut(seq));
            num -= heads;
        }
        return pages;
    }
};

/* Positions at which ranges begin. Where that keeps all teams busy until the end, each has one range, of so many items; else
 * positions are pages, and ranges go from large to small: each takes its team's share of two thirds of what is left.
 *
 * A head that more than one team walks costs partial results, and each of them a start of its own. So heads stay whole as long
 * as what is left, or the round of heads that all teams will begin last, keeps the SMs busy. */
struct cutter {
    int64_t num_teams, busy_teams;
    int64_t items_per_range; /* 0: in pages */
    int64_t total, next;     /* items or pages */
    int64_t size;            /* of the range that ends at next */
    int64_t num_left;        /* ranges that may still begin */
    int64_t last_round;      /* pages of that round, 0 where it is too small */

    cutter(const struct cuda_device *d, const struct work &w) : next(0), size(0)
    {
        num_teams = cuda_decode_teams(d, &d->attention);
        busy_teams = d->num_sms - d->num_sms / 8; /* one an SM is enough */
        items_per_range = items_per_team(w);
        total = items_per_range > 0 ? w.num_items : w.num_pages;
        num_left = cuda_decode_ranges_max(d, &d->attention);
        int64_t num_last = w.num_heads % num_teams;
        last_round = num_last >= busy_teams ? w.pages_of_last(num_last) : 0;
    }

    /* 0 where that would keep some busy for much longer than the others. */
    int64_t items_per_team(const struct work &w) const
    {
        int64_t items = (w.num_items + num_teams - 1) / num_teams;
        if (items <= 1) return items;
        bool all_whole = w.head_pages_max * busy_teams <= w.num_pages;
        return !all_whole && items * w.item_pages_max * num_teams * 4 <= w.num_pages * 5 ? items : 0;
    }

    /* head_pages: of the head that next is in. */
    void advance(int64_t head_pages)
    {
        int64_t left = total - next;
        if (items_per_range > 0) {
            next += items_per_range;
            return;
        }
        size = left * 2 / (3 * num_teams);
        num_left--;
        if (size < RANGE_PAGES_MIN) size = RANGE_PAGES_MIN;
        if (size < head_pages && head_pages * busy_teams <= std::max(left, last_round)) size = head_pages;
        if (num_left > 0 && size * num_left < left) size = (left + num_left - 1) / num_left;
        next += num_left > 0 ? size : left;
    }
};

} // namespace

bool cuda_window_add(struct cuda_device *d, int32_t window)
{
    for (int i = 0; i < d->num_windows; i++)
        if (d->windows[i] == window) return true;
    if (d->num_windows == WINDOWS_MAX) return false;
    d->windows[d->num_windows++] = window;
    return true;
}

/* Cuts the step's items into ranges. Returns their number. */
int32_t cuda_decode_plan(const struct cuda_device *d, const struct step *step, int32_t window, int32_t bundle,
                         struct decode_range *ranges)
{
    struct work work(d, step, window, bundle);
    struct cutter cutter(d, work);
    int64_t heads = work.heads, before = 0, items_before = 0,
            first_item = 0; /* of this sequence; of the newest range */
    int32_t n = 0;
    for (int32_t s = step->num_prefill_seqs; s < step->num_seqs; s++) {
        if (work.is_walked_before(s)) continue;
        struct cut c = work.cut(s);
        int64_t splits = c.end_split - c.first_split, pages = work::pages_of(c);
        bool by_items = cutter.items_per_range > 0;
        int64_t per_head = by_items ? splits : pages;
        for (; cutter.next < before + heads * per_head; cutter.advance(pages)) {
            int64_t at = cutter.next - before;
            if (!by_items && cutter.size >= pages)
                at -= at % pages; /* a range of a whole head begins where one does */
            int64_t split =
                by_items ? at % splits : (c.first_page + at % pages) / c.pages_per_split - c.first_split;
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
    assert_always(n <= cuda_decode_ranges_max(d, &d->attention));
    return n;
}

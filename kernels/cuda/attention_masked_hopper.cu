/* attention_masked_hopper.cu - prompts under masks for sm_90a, head_dim 64, 128 and 256: masks of sequences, windows of both sides,
 * chunks, temperatures. The kernel of attention_prefill_hopper.cu, with its own way from an item to its kv tiles and to what is
 * hidden of them.
 *
 * The producer is two warps. The first, which looks ahead, asks 32 kv tiles at a time, a lane each, what every group of 64 rows sees
 * of them by the minima and maxima of intervals: nothing, some, all. For each tile that some group sees it leaves a note in a ring:
 * which tile it is, what each group sees of it and of the next one. Where a group sees some, it also writes down the rows that see
 * each key, whatever hides it from the others, as two bytes: from which row of the item on, and how many. The second fetches what the
 * notes say. So a partial tile costs a comparison a score, a whole one nothing, a hidden one is not fetched, and a group that
 * sees nothing of a tile lets it pass.
 *
 *   looks ahead:  classes of 32 tiles | note, rows of its keys | note of the next tile that somebody sees ...
 *   fetches:                            Q K V K V ...
 *   consumer:                             S = Q K | where the note says partial: hide | softmax ...
 *
 * A row's bits depend on its position and on what it sees: tiles are walked from the last to the first, and a tile that it sees nothing of
 * leaves its sums as they are whether its group has passed it or not (weights 0, maximum unchanged, factors exactly 1). So does a
 * piece. A causal row has the bits that attention_prefill_hopper.cu gives it.
 *
 * Sources: Wang et al., "FlashMask", 2024; Shah et al., "FlashAttention-3", 2024. */
#include "kernels/cuda/attention_masked.cuh"
#include "kernels/cuda/attention_prefill_hopper.cuh"

namespace
{

struct masked_hopper_args {
    struct hopper_args h;
    struct mask_layer layer;
    const int32_t *base, *sequence_masks; /* sequence_masks NULL: none */
};

enum { CLASS_BITS = 2 };

/* About a kv tile. seen: CLASS_BITS for each group, an enum mask_class. */
struct tile_note {
    int32_t n, next; /* next: that is fetched; -1: n is the item's last. n -1: there is no item any more */
    uint32_t seen, next_seen;
};

enum { IS_FIRST = 1 << 30 }; /* in seen: the item's first tile */

/* Of a tile that some group sees in part: a key's rows, as the item has them. */
struct key_rows {
    uint8_t begin, count;
};

template <int D> struct masked_traits : hopper_traits<D> {
    using T = hopper_traits<D>;
    static constexpr int NOTES = D == 128   ? 5
                                 : D == 256 ? 6
                                            : 8; /* what there is room for; more than stages */
    static constexpr int ITEMS_AHEAD = 2;
    static constexpr int KEY_TURNS = (T::TILE_TOKENS + 31) / 32; /* of a warp, for a tile's keys */
    static constexpr int NOTES_AT = (8 * (2 * NOTES + ITEMS_AHEAD) + 15) / 16 * 16; /* behind barriers */
    static constexpr int ROWS_AT = NOTES_AT + NOTES * (int)sizeof(struct tile_note);
    static constexpr int ITEMS_AT = ROWS_AT + NOTES * T::TILE_TOKENS * (int)sizeof(struct key_rows);
    static constexpr int MASKED_BYTES = T::SHARED_BYTES + ITEMS_AT + ITEMS_AHEAD * (int)sizeof(struct item);
    static_assert(T::ROWS < 256, "numbers of rows are bytes");
    static_assert(MASKED_BYTES <= 227 * 1024, "shared memory of a CTA");
};

/* Behind the view's barriers and items: more barriers, the ring of notes with keys' rows, and the items that are looked ahead at. */
template <int D> struct masked_view : view<D> {
    using M = masked_traits<D>;
    unsigned char *notes_begin;
    uint32_t note_barriers;

    __device__ explicit masked_view(unsigned char *shared) : view<D>(shared)
    {
        note_barriers = this->barriers + 256;
        notes_begin = shared + (note_barriers - shared_address(shared));
    }
    __device__ uint32_t note_full(int note) const { return note_barriers + 8 * note; }
    __device__ uint32_t note_empty(int note) const { return note_full(M::NOTES + note); }
    __device__ uint32_t ahead_empty(int item) const { return note_full(2 * M::NOTES + item); }
    __device__ struct tile_note *note(int note) const
    {
        return (struct tile_note *)(notes_begin + M::NOTES_AT) + note;
    }
    __device__ struct key_rows *rows(int note) const
    {
        return (struct key_rows *)(notes_begin + M::ROWS_AT) + note * M::TILE_TOKENS;
    }
    __device__ struct item *ahead(int item) const
    {
        return (struct item *)(notes_begin + M::ITEMS_AT) + item;
    }
};

/* As read_item: one lane reads for its warp, the one that later says that the note has been read. */
__device__ __forceinline__ struct tile_note read_note(const struct tile_note *from)
{
    struct tile_note t = {};
    if (threadIdx.x % 32 == 0) t = *from;
    t.n = __shfl_sync(0xffffffffu, t.n, 0);
    t.next = __shfl_sync(0xffffffffu, t.next, 0);
    t.seen = __shfl_sync(0xffffffffu, t.seen, 0);
    t.next_seen = __shfl_sync(0xffffffffu, t.next_seen, 0);
    return t;
}

__device__ __forceinline__ enum mask_class class_of_group(uint32_t seen, int group)
{
    return (enum mask_class)(seen >> (CLASS_BITS * group) & 3);
}

/* A lane has read a note and what it needs of the keys' rows: each says so itself, which racecheck follows. */
__device__ __forceinline__ void release_note(uint32_t barrier)
{
    barrier_arrive(barrier);
}

/* ---- the warp that looks ahead ---- */

struct masked_item {
    struct item w;
    struct device_mask mask;
};

/* Where whoever looks for an item's kv tiles stands: 32 of them, lane i's is top - i. */
struct tile_search {
    int32_t top, begin;
    uint32_t left, seen; /* left: tiles that somebody sees, a bit each; seen: of the lane's tile */
};

struct seen_tile {
    int32_t n; /* -1: none is left */
    uint32_t seen;
};

template <int D>
__device__ __forceinline__ uint32_t classes_of(const masked_hopper_args &m, const struct masked_item &x,
                                               int32_t n)
{
    using T = hopper_traits<D>;
    constexpr int32_t COUNT = T::TILE_TOKENS;
    int32_t first = x.w.seqlen - x.w.num_rows + x.w.first_row;
    struct mask_tile bounds = {};
    if (x.mask.keys) bounds = bounds_of_keys<COUNT>(x.mask, x.w.seqlen, n * COUNT);
    uint32_t seen = 0;
#pragma unroll
    for (int group = 0; group < T::CONSUMERS; group++, first += GROUP_ROWS) {
        int32_t end = min(first + GROUP_ROWS, x.w.seqlen);
        enum mask_class c = MASK_HIDDEN;
        if (first < end)
            c = class_of_keys(m.layer, x.mask.keys ? &bounds : NULL, x.w.seqlen, n * COUNT, COUNT, first,
                              end);
        seen |= (uint32_t)c << (CLASS_BITS * group);
    }
    return seen;
}

template <int D>
__device__ __forceinline__ void ask_tiles(const masked_hopper_args &m, const struct masked_item &x,
                                          struct tile_search *t)
{
    int32_t n = t->top - (int32_t)(threadIdx.x % 32);
    t->seen = n >= t->begin ? classes_of<D>(m, x, n) : 0;
    t->left = __ballot_sync(0xffffffffu, t->seen != 0);
}

/* From the last tile that the item's rows may see by their places and the layer. */
template <int D>
__device__ __forceinline__ void search_begin(const masked_hopper_args &m, const struct masked_item &x,
                                             struct tile_search *t)
{
    using T = hopper_traits<D>;
    int32_t offset = x.w.seqlen - x.w.num_rows, last_row = min(x.w.first_row + T::ROWS, x.w.num_rows) - 1;
    t->begin = first_key_of(m.layer, offset + x.w.first_row) / T::TILE_TOKENS;
    int32_t last = offset + last_row;
    if (x.mask.keys) last = min(x.w.seqlen, end_key_of(m.layer, last)) - 1;
    t->top = last_row < x.w.first_row ? -1 : last / T::TILE_TOKENS;
    if (x.w.piece >= 0) {
        t->begin = max(t->begin, x.w.piece * T::PIECE_TILES);
        t->top = min(t->top, (x.w.piece + 1) * T::PIECE_TILES - 1);
    }
    ask_tiles<D>(m, x, t);
}

template <int D>
__device__ __forceinline__ struct seen_tile search_next(const masked_hopper_args &m,
                                                        const struct masked_item &x, struct tile_search *t)
{
    while (t->left == 0) {
        t->top -= 32;
        if (t->top < t->begin) return seen_tile{-1, 0};
        ask_tiles<D>(m, x, t);
    }
    int lane = __ffs((int)t->left) - 1;
    t->left &= t->left - 1;
    return seen_tile{t->top - lane, __shfl_sync(0xffffffffu, t->seen, lane)};
}

/* Whether some group sees some. */
__device__ __forceinline__ bool has_partial(uint32_t seen)
{
    static_assert(MASK_PARTIAL == 1 && MASK_WHOLE == 2, "a bit each");
    return seen & 0x15u;
}

/* Of the lane's keys of a tile, every 32nd. */
template <int D>
__device__ __forceinline__ void find_rows(const masked_hopper_args &m, const struct masked_item &x, int32_t n,
                                          struct key_rows (&rows)[masked_traits<D>::KEY_TURNS])
{
    using T = masked_traits<D>;
    int32_t place = x.w.seqlen - x.w.num_rows + x.w.first_row; /* of the item's row 0 */
    int32_t first = n * T::TILE_TOKENS + threadIdx.x % 32;
    struct mask_rows r[T::KEY_TURNS];
#pragma unroll
    for (int i = 0; i < T::KEY_TURNS; i++) { /* reads that are under way together */
        int32_t key = first + 32 * i;
        r[i] = x.mask.keys && key < x.w.seqlen ? rows_of_key(x.mask, key) : mask_rows{key, MASK_END};
    }
#pragma unroll
    for (int i = 0; i < T::KEY_TURNS; i++) {
        int32_t key = first + 32 * i;
        r[i] = rows_that_see(m.layer, r[i], key);
        int32_t begin = min(max(r[i].begin - place, 0), T::ROWS);
        int32_t end = key < x.w.seqlen ? min(r[i].end - place, T::ROWS) : 0;
        rows[i] = key_rows{(uint8_t)begin, (uint8_t)max(end - begin, 0)};
    }
}

template <int D>
__device__ __forceinline__ void write_rows(struct key_rows *to,
                                           const struct key_rows (&rows)[masked_traits<D>::KEY_TURNS])
{
    using T = masked_traits<D>;
#pragma unroll
    for (int i = 0; i < T::KEY_TURNS; i++) {
        int at = 32 * i + threadIdx.x % 32;
        if (at < T::TILE_TOKENS) to[at] = rows[i];
    }
}

/* As in attention_prefill_hopper.cu. Where more than a row's place hides keys, one item walks all pieces. */
__device__ __forceinline__ struct masked_item find_item(const masked_hopper_args &m, int32_t index)
{
    struct masked_item x = {};
    x.w.head = -1;
    if (index >= m.h.num_items) return x;
    const prefill_args &a = m.h.a;
    struct prefill_tile tile = a.tiles[index / a.heads_per_tile];
    x.mask = device_mask_at(m.base, m.sequence_masks ? m.sequence_masks[tile.seq] : 0, a.seqlens_k[tile.seq]);
    bool hides_more = x.mask.keys || m.layer.sliding_window > 0 || m.layer.chunk > 0;
    fill_item(a, tile, index % a.heads_per_tile, tile.num_pieces == 1 || hides_more, &x.w);
    return x;
}

/* Where it stands: in the ring of notes, and in that of items. */
struct ahead_place {
    struct pipeline_state note, item;
};

/* An item without rows has no notes, and nobody else learns of it. */
template <int D>
__device__ void write_notes(const masked_hopper_args &m, const masked_view<D> &s, const struct masked_item &x,
                            struct ahead_place *at)
{
    using T = masked_traits<D>;
    int lane = threadIdx.x % 32;
    struct tile_search search;
    search_begin<D>(m, x, &search);
    struct seen_tile tile = search_next<D>(m, x, &search);
    for (bool is_first = true; tile.n >= 0; is_first = false) {
        struct key_rows rows[T::KEY_TURNS] = {};
        if (has_partial(tile.seen)) find_rows<D>(m, x, tile.n, rows);
        struct seen_tile after = search_next<D>(m, x, &search);
        barrier_wait(s.note_empty(at->note.stage), at->note.parity ^ 1);
        if (has_partial(tile.seen)) write_rows<D>(s.rows(at->note.stage), rows);
        if (is_first) {
            barrier_wait(s.ahead_empty(at->item.stage), at->item.parity ^ 1);
            if (lane == 0) *s.ahead(at->item.stage) = x.w;
            at->item.advance(T::ITEMS_AHEAD);
        }
        if (lane == 0)
            *s.note(at->note.stage) =
                tile_note{tile.n, after.n, tile.seen | (is_first ? IS_FIRST : 0), after.seen};
        __syncwarp();
        if (lane == 0) barrier_arrive(s.note_full(at->note.stage));
        at->note.advance(T::NOTES);
        tile = after;
    }
}

template <int D>
__device__ __forceinline__ void look_ahead(const masked_hopper_args &m, const masked_view<D> &s)
{
    int lane = threadIdx.x % 32;
    auto take = [&] { return lane == 0 ? (int32_t)(gridDim.x + atomicAdd(m.h.items_taken, 1)) : 0; };
    struct ahead_place at = {};
    struct masked_item x = find_item(m, blockIdx.x);
    int32_t after = take();
    while (x.w.head >= 0) {
        struct masked_item next = find_item(m, __shfl_sync(0xffffffffu, after, 0));
        after = take();
        write_notes<D>(m, s, x, &at);
        x = next;
    }
    barrier_wait(s.note_empty(at.note.stage), at.note.parity ^ 1);
    if (lane == 0) {
        s.note(at.note.stage)->n = -1;
        barrier_arrive(s.note_full(at.note.stage));
    }
}

/* ---- the warp that fetches ---- */

/* The item that the next first note belongs to. */
template <int D>
__device__ __forceinline__ struct item take_item(const masked_view<D> &s, struct pipeline_state *ahead)
{
    const struct item *from = s.ahead(ahead->stage);
    struct item w = read_item(*from);
    if (threadIdx.x % 32 == 0) w.table_offset = from->table_offset;
    w.table_offset = __shfl_sync(0xffffffffu, w.table_offset, 0);
    warp_release(s.ahead_empty(ahead->stage));
    ahead->advance(masked_traits<D>::ITEMS_AHEAD);
    return w;
}

/* Q of an item is fetched before its first kv tile, or, where it is late, behind its K. */
template <int D>
__device__ __forceinline__ void fetch(const masked_hopper_args &m, const struct hopper_maps &maps,
                                      const masked_view<D> &s)
{
    using T = masked_traits<D>;
    const int lane = threadIdx.x % 32;
    struct pipeline_state note = {0, 0}, ahead = {0, 0}, q = {0, 0}, c = {0, 0};
    struct item w = {};
    int32_t block = -1; /* the lane's, of the tile that follows */
    auto block_of = [&](int32_t n) {
        int32_t page = n * T::TILE_PAGES + lane;
        bool is_there = n >= 0 && lane < T::TILE_PAGES && page * BLOCK_SIZE < w.seqlen;
        return is_there ? m.h.a.tables[w.table_offset + page] : -1;
    };
    for (;; note.advance(T::NOTES)) {
        barrier_wait(s.note_full(note.stage), note.parity);
        struct tile_note t = read_note(s.note(note.stage));
        release_note(s.note_empty(note.stage));
        bool q_is_missing = false;
        if (t.n >= 0 && (t.seen & IS_FIRST)) {
            w = take_item(s, &ahead);
            block = block_of(t.n);
            q_is_missing = T::Q_IS_LATE;
            if (!T::Q_IS_LATE) produce_q<D>(m.h, &maps.q, s, w, q);
        }
        if (t.n < 0) break;
        int32_t block_after = block_of(t.next), kv_head = w.head / m.h.a.group;
        for (int v = 0; v < 2; v++) {
            int32_t group = group_of(m.h, block, v, kv_head);
            barrier_wait(s.empty(v, c.stage), c.parity ^ 1);
            load_tile<D>(&maps.pool, s, v, c.stage, group);
            if (q_is_missing) produce_q<D>(m.h, &maps.q, s, w, q);
            q_is_missing = false;
        }
        c.advance(T::STAGES);
        block = block_after;
        if (t.next < 0) q.advance(T::Q_STAGES);
    }
    w.head = -1;
    produce_q<D>(m.h, &maps.q, s, w, q);
}

/* ---- consumers ---- */

/* Where a group stands: in the rings of K and V, and in that of notes. */
struct place {
    struct pipeline_state kv;
    int32_t note;
};

template <int D> __device__ __forceinline__ void advance(struct place *c)
{
    c->kv.advance(hopper_traits<D>::STAGES);
    if (++c->note == masked_traits<D>::NOTES) c->note = 0;
}

/* The tile that K comes next of: who has fetched it had read the note. */
template <int D>
__device__ __forceinline__ struct tile_note wait_for_keys(const masked_view<D> &s, const struct place &c)
{
    barrier_wait(s.full(false, c.kv.stage), c.kv.parity);
    return read_note(s.note(c.note));
}

/* A group's 64 rows of an item: this thread's two. */
struct group_rows {
    int32_t row, in_item; /* the first, in the chunk and in the item; the other is 8 later */
    int32_t seqlen;
    float temperature[2];
};

__device__ __forceinline__ struct group_rows rows_of(const masked_hopper_args &m, const struct item &w,
                                                     int group)
{
    struct group_rows g;
    g.in_item = group * GROUP_ROWS + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
    g.row = w.first_row + g.in_item;
    g.seqlen = w.seqlen;
    for (int i = 0; i < 2; i++)
        g.temperature[i] = temperature_of(m.layer, w.seqlen - w.num_rows + g.row + 8 * i);
    return g;
}

/* With a cap they have none left of the temperature. */
struct row_scales {
    float of[2];
    __device__ __forceinline__ float operator[](int i) const { return of[i]; }
};

template <bool EXTRA>
__device__ __forceinline__ struct row_scales scales_of(const prefill_args &a, const struct group_rows &g)
{
    if (EXTRA && a.softcap > 0) return row_scales{{a.scale_log2, a.scale_log2}};
    return row_scales{{a.scale_log2 * g.temperature[0], a.scale_log2 * g.temperature[1]}};
}

/* rows: of the tile's keys. */
template <int N>
__device__ __forceinline__ void hide_scores(float (&s)[N], const struct key_rows *rows, uint32_t row)
{
    static_assert(sizeof(struct key_rows) == 2, "two keys are a word");
    const uint32_t *words = (const uint32_t *)rows + threadIdx.x % 4;
#pragma unroll
    for (int n = 0; n < N / 4; n++) {
        uint32_t two = words[4 * n];
#pragma unroll
        for (int k = 0; k < 2; k++) {
            uint32_t begin = two >> (16 * k) & 255, count = two >> (16 * k + 8) & 255;
#pragma unroll
            for (int i = 0; i < 2; i++)
                if (row + 8 * i - begin >= count) s[4 * n + 2 * i + k] = -INFINITY;
        }
    }
}

/* Scores become weights, and the tile's note is not read any more. */
template <int D, bool EXTRA>
__device__ __forceinline__ void
weigh(const prefill_args &a, const masked_view<D> &s, const struct group_rows &g, bool is_whole, int note,
      float (&scores)[hopper_traits<D>::SCORES], struct softmax_state (&r)[2], float (&rescale)[2])
{
    if (EXTRA && a.softcap > 0) {
#pragma unroll
        for (int i = 0; i < hopper_traits<D>::SCORES; i++)
            scores[i] = softcap_score(scores[i], a.softcap * g.temperature[i / 2 % 2]);
    }
    if (!is_whole) hide_scores(scores, s.rows(note), (uint32_t)g.in_item);
    release_note(s.note_empty(note));
    softmax(scores, r, rescale, scales_of<EXTRA>(a, g));
}

/* A tile that only other groups see. */
template <int D>
__device__ __forceinline__ void pass_tile(const masked_view<D> &s, int group, struct place *c)
{
    turn_begin<D>(group);
    turn_end<D>(group);
    for (int v = 0; v < 2; v++) {
        barrier_wait(s.full(v, c->kv.stage), c->kv.parity);
        warp_release(s.empty(v, c->kv.stage));
    }
    release_note(s.note_empty(c->note));
    advance<D>(c);
}

/* Whether the group goes on with the next tile: it sees it, and it is of the same piece. */
template <int D> __device__ __forceinline__ bool goes_on(const struct tile_note &t, int group)
{
    using T = hopper_traits<D>;
    return t.next >= 0 && class_of_group(t.next_seen, group) != MASK_HIDDEN &&
           t.next / T::PIECE_TILES == t.n / T::PIECE_TILES;
}

/* softmax(Q K) V of tiles from t on, as far as the group goes on. c stands at t, whose K is there, and is left behind the last, whose
 * note is returned. o and r are what has been seen of the piece. q_empty: of Q's buffer, which, where Q is late, is let go with
 * the item's last scores. */
template <int D, bool EXTRA>
__device__ __forceinline__ struct tile_note
walk(const prefill_args &a, const masked_view<D> &s, const struct group_rows &g, int group,
     const uint32_t (&q)[D / 16][4], uint32_t q_address, uint32_t q_empty, struct tile_note t,
     struct place *c, float (&o)[D / 2], struct softmax_state (&r)[2])
{
    using T = hopper_traits<D>;
    float scores[T::SCORES], rescale[2];
    uint32_t p[T::SCORES / 2];
    turn_begin<D>(group);
    multiply_keys<D>(scores, q, q_address, s.tile(false, c->kv.stage));
    turn_end<D>(group);
    wgmma_wait<0>();
    wgmma_hold(scores);
    warp_release(s.empty(false, c->kv.stage));
    if (T::Q_IS_LATE && t.next < 0) warp_release(q_empty);
    weigh<D, EXTRA>(a, s, g, class_of_group(t.seen, group) == MASK_WHOLE, c->note, scores, r, rescale);
#pragma unroll
    for (int i = 0; i < D / 2; i++) o[i] *= rescale[i / 2 % 2];
    pack_weights(p, scores);
    if (g.seqlen < (t.n + 1) * T::TILE_TOKENS && g.seqlen % BLOCK_SIZE) {
        barrier_wait(s.full(true, c->kv.stage), c->kv.parity);
        zero_rows<D>(s.tile(true, c->kv.stage), g.seqlen - t.n * T::TILE_TOKENS, group);
    }
    struct pipeline_state v = c->kv; /* values are one tile behind */
    advance<D>(c);
    while (goes_on<D>(t, group)) {
        t = wait_for_keys(s, *c);
        turn_begin<D>(group);
        multiply_keys<D>(scores, q, q_address, s.tile(false, c->kv.stage));
        barrier_wait(s.full(true, v.stage), v.parity);
        multiply_values<D>(o, p, s.tile(true, v.stage));
        turn_end<D>(group);
        wgmma_wait<1>();
        wgmma_hold(scores);
        warp_release(s.empty(false, c->kv.stage));
        if (T::Q_IS_LATE && t.next < 0) warp_release(q_empty);
        weigh<D, EXTRA>(a, s, g, class_of_group(t.seen, group) == MASK_WHOLE, c->note, scores, r, rescale);
        wgmma_wait<0>();
        wgmma_hold(o);
        warp_release(s.empty(true, v.stage));
#pragma unroll
        for (int i = 0; i < D / 2; i++) o[i] *= rescale[i / 2 % 2];
        pack_weights(p, scores);
        v = c->kv;
        advance<D>(c);
    }
    barrier_wait(s.full(true, v.stage), v.parity);
    multiply_values<D>(o, p, s.tile(true, v.stage));
    wgmma_wait<0>();
    wgmma_hold(o);
    warp_release(s.empty(true, v.stage));
    return t;
}

/* One item's 64 rows of this group. c stands at the item's first tile and is left behind its last. */
template <int D, bool EXTRA>
__device__ __forceinline__ void consume_item(const masked_hopper_args &m, const masked_view<D> &s,
                                             const struct item &w, int group, int q_stage, struct place *c)
{
    using T = hopper_traits<D>;
    const prefill_args &a = m.h.a;
    struct group_rows g = rows_of(m, w, group);
    uint32_t q_address = s.q(q_stage) + group * GROUP_ROWS * 128, q_empty = s.q_empty(q_stage), q[D / 16][4];
    if (T::Q_IN_REGISTERS) load_queries<D>(q, q_address);
    if (T::Q_IN_REGISTERS) warp_release(q_empty);
    float4 *slot = slot_of<D>(m.h, m.h.num_piece_slots + blockIdx.x, group);
    float o[D / 2] = {};
    struct softmax_state r[2] = {{-INFINITY, 0}, {-INFINITY, 0}};
    int32_t piece = -1; /* of o and r */
    bool has_slot = false;
    struct tile_note t;
    do {
        t = wait_for_keys(s, *c);
        if (class_of_group(t.seen, group) == MASK_HIDDEN) {
            pass_tile<D>(s, group, c);
            if (T::Q_IS_LATE && t.next < 0) warp_release(q_empty);
            continue;
        }
        if (piece >= 0 && t.n / T::PIECE_TILES != piece) {
            if (has_slot) merge_slot<D, true>(slot, o, r, scales_of<EXTRA>(a, g));
            write_slot<D>(slot, o, r);
            has_slot = true;
#pragma unroll
            for (int i = 0; i < D / 2; i++) o[i] = 0;
            r[0] = r[1] = {-INFINITY, 0};
        }
        piece = t.n / T::PIECE_TILES;
        t = walk<D, EXTRA>(a, s, g, group, q, q_address, q_empty, t, c, o, r);
    } while (t.next >= 0);
    if (!T::Q_IN_REGISTERS && !T::Q_IS_LATE) warp_release(q_empty);
    if (piece < 0) return;
    const struct row_scales scales = scales_of<EXTRA>(a, g);
    if (w.piece >= 0) { /* causal: the group sees all pieces up to that of its last row */
        int32_t last_row = min(w.first_row + (group + 1) * GROUP_ROWS, w.num_rows) - 1;
        int32_t num_pieces = (w.seqlen - w.num_rows + last_row) / prefill_piece_tokens(D) + 1;
        if (!finish_piece<D>(m.h, w, num_pieces, group, o, r, scales)) return;
    }
    if (has_slot) merge_slot<D, true>(slot, o, r, scales);
    store_rows<D, EXTRA>(a, w, g.row, o, r, scales);
}

template <int D, bool EXTRA>
__global__ void __launch_bounds__(hopper_traits<D>::THREADS, 1)
    masked_hopper_kernel(masked_hopper_args m, const __grid_constant__ struct hopper_maps maps)
{
    using T = masked_traits<D>;
    extern __shared__ unsigned char shared[];
    masked_view<D> s(shared);
    int group = threadIdx.x / GROUP_THREADS;
    if (threadIdx.x == 0) {
        ring_init(s.q_full(0), s.q_empty(0), T::Q_STAGES, T::CONSUMERS * 4);
        for (int v = 0; v < 2; v++) ring_init(s.full(v, 0), s.empty(v, 0), T::STAGES, T::CONSUMERS * 4);
        ring_init(s.note_full(0), s.note_empty(0), T::NOTES, (T::CONSUMERS * 4 + 1) * 32);
        for (int i = 0; i < T::ITEMS_AHEAD; i++) barrier_init(s.ahead_empty(i), 1);
        barrier_init_fence();
    }
    __syncthreads();
    if (group == T::CONSUMERS) {
        registers_lower<T::PRODUCER_REGISTERS>();
        int warp = threadIdx.x % GROUP_THREADS / 32;
        if (warp == 0) fetch<D>(m, maps, s);
        if (warp == 1) look_ahead<D>(m, s);
    } else {
        registers_raise<T::CONSUMER_REGISTERS>();
        if (group == T::CONSUMERS - 1) turn_end<D>(group); /* the first turn is group 0's */
        struct pipeline_state q = {0, 0};
        struct place c = {};
        for (;; q.advance(T::Q_STAGES)) {
            barrier_wait(s.q_full(q.stage), q.parity);
            struct item w = read_item(s.items[q.stage]);
            if (w.head < 0) break;
            consume_item<D, EXTRA>(m, s, w, group, q.stage, &c);
        }
    }
}

/* ---- host ---- */

template <int D, bool EXTRA>
void launch(struct cuda_device *d, const struct masked_hopper_args &m, const struct batch *b,
            const __nv_bfloat16 *pool)
{
    using T = masked_traits<D>;
    struct hopper_maps maps;
    if (!encode_maps<D>(d, m.h, b->num_tokens, pool, &maps)) return;
    auto kernel = masked_hopper_kernel<D, EXTRA>;
    if (!cuda_allow_shared(d, (const void *)kernel, T::MASKED_BYTES)) return;
    unsigned grid = (unsigned)std::min(m.h.num_items, (int32_t)d->num_sms);
    kernel<<<grid, T::THREADS, T::MASKED_BYTES, d->stream>>>(m, maps);
}

template <int D>
void launch(struct cuda_device *d, const struct masked_hopper_args &m, const struct batch *b,
            const __nv_bfloat16 *pool)
{
    prefill_has_extra(m.h.a) ? launch<D, true>(d, m, b, pool) : launch<D, false>(d, m, b, pool);
}

} // namespace

bool masked_hopper_supports(const struct cuda_device *d, int32_t head_dim)
{
    return prefill_hopper_rows_per_tile(d, head_dim) && !d->latent_rotary_dim && !d->layers_differ;
}

void masked_hopper_launch(struct cuda_device *d, const struct batch *b, __nv_bfloat16 *out,
                          const __nv_bfloat16 *qkv, const struct kv_pool *pool, int32_t layer,
                          const struct attention_args *args)
{
    struct prefill_args a = prefill_args_of(b, out, qkv, pool, layer, args);
    struct masked_hopper_args m;
    m.h = hopper_args_of(d, &a, b, pool, layer);
    m.layer = mask_layer_of(args);
    m.base = b->tables;
    m.sequence_masks = b->sequence_masks;
    args->head_dim == 64    ? launch<64>(d, m, b, pool->data)
    : args->head_dim == 128 ? launch<128>(d, m, b, pool->data)
                            : launch<256>(d, m, b, pool->data);
}

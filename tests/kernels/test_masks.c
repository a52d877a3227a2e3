/* test_masks.c - attention under masks: of sequences (kernels/mask.h), of layers in chunks, and both together, with a
 * temperature too, against a dense mask in double precision; and its bits against themselves. On a GPU fewer of each
 * (FLASHD_TEST_SMALL: fewer still), but each head size that a Hopper has a kernel of its own for, and sequences of more tiles than a kernel
 * looks at in one go. */
#include "attention_rig.h"

enum kind { CAUSAL, PREFIX, DOCUMENTS, JOINED_DOCUMENTS, TREE, SELF_ONLY, NUM_KINDS };

static const int32_t lengths[] = {1, 2, 15, 17, 63, 64, 65, 128, 129, 255, 257, 300};

#ifdef FLASHD_DEBUG
enum { RULES_STEP = 3 }; /* a sanitized build takes its time: one or two of the layers' rules for each kind */
#else
enum { RULES_STEP = 1 };
#endif

static bool on_gpu(void)
{
    const char *device = getenv("FLASHD_TEST_DEVICE");
    return device && strcmp(device, "cpu") != 0;
}

static const int32_t dims[] = {64, 128, 256, 512};

/* So many of them. */
static size_t num_dims(void)
{
    return on_gpu() ? array_length(dims) : 1;
}

static enum dtype kv_of(enum dtype dtype)
{
    return on_gpu() ? DTYPE_BF16 : dtype;
}

/* ---- masks ---- */

/* Where the token's part ends: a step may end there. may_end[length]: is filled in. */
static void join(struct mask_rows *keys, int32_t begin, int32_t end, bool *may_end)
{
    mask_join(keys, begin, end);
    for (int32_t i = begin + 1; i < end; i++) may_end[i] = false;
}

static void add_documents(struct mask_rows *keys, int32_t length, bool joined, bool *may_end,
                          struct random *random)
{
    for (int32_t begin = 0, end; begin < length; begin = end) {
        end = begin + 1 + random_below(random, random_below(random, 2) ? 20 : 150);
        end = min_of(end, length);
        mask_close(keys, begin, end);
        if (joined) join(keys, begin, begin + 1 + random_below(random, end - begin), may_end);
    }
}

/* The descendants of begin are the tokens up to end. */
static void add_tree(struct mask_rows *keys, int32_t begin, int32_t end, struct random *random)
{
    mask_close(keys, begin, end);
    for (int32_t child = begin + 1, next; child < end; child = next) {
        next = child + 1 + random_below(random, end - child);
        add_tree(keys, child, next, random);
    }
}

static void add_mask(struct rig *r, int32_t seq, enum kind kind, bool *may_end, struct random *random)
{
    int32_t length = r->shape.lengths[seq];
    struct mask_rows *keys = rig_mask(r, seq);
    for (int32_t i = 0; i <= length; i++) may_end[i] = true;
    if (kind == PREFIX) join(keys, 0, 1 + random_below(random, length), may_end);
    if (kind == DOCUMENTS || kind == JOINED_DOCUMENTS)
        add_documents(keys, length, kind == JOINED_DOCUMENTS, may_end, random);
    if (kind == TREE) add_tree(keys, random_below(random, length), length, random);
    for (int32_t i = 0; kind == SELF_ONLY && i < length; i++) mask_close(keys, i, i + 1);
    rig_mask_done(r, seq);
}

/* ---- against the reference ---- */

static float *room_for(const struct rig *r, int32_t count)
{
    return malloc((size_t)(count * r->shape.num_heads * r->shape.head_dim) * sizeof(float));
}

/* All sequences in one step. */
static void check_kind(const char *isa, enum kind kind, struct rig_shape shape, struct random *random)
{
    int32_t num_tokens = 0;
    bool may_end[301];
    shape.num_seqs = (int32_t)array_length(lengths);
    memcpy(shape.lengths, lengths, sizeof lengths);
    for (int32_t s = 0; s < shape.num_seqs; s++) num_tokens += lengths[s];
    struct rig *r = rig_new(isa, 1 + random_below(random, 3), &shape, num_tokens, random);
    struct rig_part parts[RIG_SEQS_MAX];
    for (int32_t s = 0; s < shape.num_seqs; s++) {
        parts[s] = (struct rig_part){.seq = s, .count = lengths[s], .out = room_for(r, lengths[s])};
        if (s % 5) add_mask(r, s, kind, may_end, random); /* the others have none */
    }
    rig_run(r, parts, shape.num_seqs);
    rig_check(r, parts, shape.num_seqs, random);
    for (int32_t s = 0; s < shape.num_seqs; s++) free(parts[s].out);
    rig_free(r);
}

/* Layers that hide nothing more, and those with a window, of both sides too, with chunks, with both. */
static struct rig_shape shape_of_rule(size_t i, int32_t dim, struct random *random)
{
    static const int32_t windows[] = {0, 70, 0, 0, 40, 65, 9}, chunks[] = {0, 0, 37, 64, 100, 0, 0},
                         reaches[] = {128, 0, 33, 0, 0, 20, 0};
    struct rig_shape shape = rig_shape_of(1 + random_below(random, 4), 1 + (int32_t)(i % 2), dim,
                                          kv_of(i % 2 ? DTYPE_F32 : DTYPE_BF16));
    shape.sliding_window = shape.other_window = windows[i];
    shape.window_of_both_sides = i >= 4;
    shape.chunk = chunks[i];
    shape.distance_reach = dim <= 256 ? reaches[i] : 0;
    shape.has_sinks = i == 3;
    shape.softcap = i == 4 ? 5 : 0;
    shape.temperature_scale = 0.7f;
    shape.temperature_floor = i == 1 || i == 4 ? 13 : 0;
    shape.temperature_offset = i % 2;
    return shape;
}

static void against_reference(const char *isa)
{
    enum { NUM_RULES = 7 };
    struct random random = {.seed = test_seed()};
    const size_t step = getenv("FLASHD_TEST_SMALL") ? NUM_RULES : on_gpu() ? 3 : RULES_STEP;
    for (int kind = 0; kind < NUM_KINDS; kind++)
        for (size_t d = 0; d < num_dims(); d++)
            for (size_t i = ((size_t)kind + d) % step; i < NUM_RULES; i += step) {
                if (!takes_part((size_t)kind + d + i)) continue;
                int32_t dim = i == 2 && d == 0 ? 80 : dims[d];
                check_kind(isa, (enum kind)kind, shape_of_rule(i, dim, &random), &random);
            }
}

/* The last tokens of sequences, of one split and of several, decoded together; where a mask closes what lies before, too. */
static void decodes(const char *isa)
{
    static const int32_t decoded[] = {40, 300, 700, 1, 75}, chunks[] = {0, 37, 256, 0},
                         groups[] = {3, 5, 3, 8};
    struct random random = {.seed = test_seed()};
    for (size_t i = 0; i < array_length(chunks); i++) {
        struct rig_shape shape = rig_shape_of(groups[i], 1 + (int32_t)(i == 0), dims[i], DTYPE_BF16);
        shape.num_seqs = (int32_t)array_length(decoded);
        memcpy(shape.lengths, decoded, sizeof decoded);
        shape.chunk = chunks[i];
        shape.temperature_scale = 0.4f;
        shape.temperature_floor = i == 1 ? 50 : 0;
        shape.has_sinks = i == 2;
        struct rig *r = rig_new(isa, 2, &shape, 700, &random);
        struct rig_part parts[RIG_SEQS_MAX];
        for (int32_t s = 0; s < shape.num_seqs; s++) {
            const int32_t last = decoded[s] - 1;
            if (last > 0) rig_run(r, &(struct rig_part){.seq = s, .count = last}, 1);
            parts[s] = (struct rig_part){s, last, 1, true, room_for(r, 1)};
            if (i == 0) mask_close(rig_mask(r, s), 0, last / 2);
            if (i == 0) rig_mask_done(r, s);
        }
        rig_run(r, parts, shape.num_seqs);
        rig_check(r, parts, shape.num_seqs, &random);
        for (int32_t s = 0; s < shape.num_seqs; s++) free(parts[s].out);
        rig_free(r);
    }
}

static void test_decodes(void **state)
{
    (void)state;
    for_each_isa(decodes);
}

static void test_against_reference(void **state)
{
    (void)state;
    for_each_isa(against_reference);
}

/* ---- the same bits ---- */

/* Tokens [first, count) behind which a step may end, at least one. */
static int32_t step_of(int32_t first, int32_t length, const bool *may_end, int32_t most)
{
    int32_t end = min_of(length, first + most);
    while (end < length && !may_end[end]) end++;
    return end - first;
}

/* Sequence 0, in steps of about most tokens; 0: those of one token decode. Another one runs beside it. */
static void run_in_steps(struct rig *r, const bool *may_end, int32_t most, float *out)
{
    size_t row = (size_t)(r->shape.num_heads * r->shape.head_dim);
    int32_t other = 0;
    for (int32_t first = 0, count; first < r->shape.lengths[0]; first += count) {
        count = step_of(first, r->shape.lengths[0], may_end, max_of(most, 1));
        bool decodes = most == 0 && count == 1;
        struct rig_part mine = {0, first, count, decodes, out + (size_t)first * row},
                        beside = {.seq = 1, .first = other, .count = 1 + most % 3};
        struct rig_part parts[2] = {beside, mine};
        bool alone = other + beside.count > r->shape.lengths[1];
        rig_run(r, parts + alone, 2 - alone);
        other += beside.count;
    }
}

static void same_bits_of(const char *isa, enum kind kind, struct rig_shape shape)
{
    static const int32_t steps[] = {1000, 1, 16, 61, 0};
    struct random random = {.seed = test_seed()};
    size_t count = (size_t)(shape.lengths[0] * shape.num_heads * shape.head_dim);
    float *first = malloc(count * sizeof *first), *other = malloc(count * sizeof *other);
    bool may_end[2][700];
    for (int num_threads = 1; num_threads <= (on_gpu() ? 1 : 3); num_threads += 2) {
        random.counter = 0; /* the same data, and masks, for every number of threads */
        struct rig *r = rig_new(isa, num_threads, &shape, shape.lengths[0] + 8, &random);
        for (int32_t s = 0; s < 2; s++) add_mask(r, s, kind, may_end[s], &random);
        for (size_t i = 0; i < array_length(steps); i++) {
            bool is_first = num_threads == 1 && i == 0;
            if (steps[i] <= 1 && on_gpu()) continue; /* decoding has bits of its own there */
            rig_shuffle_blocks(r, &random);
            run_in_steps(r, may_end[0], steps[i], is_first ? first : other);
            if (is_first) continue;
            int64_t different = num_bits_different(first, other, count);
            if (different)
                fail_msg("%s, kind %d: %lld values differ in steps of %d", r->d->description, (int)kind,
                         (long long)different, steps[i]);
        }
        rig_free(r);
    }
    free(first);
    free(other);
}

static void same_bits(const char *isa)
{
    for (size_t i = 0; i < NUM_KINDS * num_dims(); i++) {
        if (!takes_part(i)) continue;
        const int kind = (int)(i % NUM_KINDS);
        const int32_t dim = dims[i / NUM_KINDS];
        struct rig_shape shape = rig_shape_of(3, 1, dim, kv_of(kind % 2 ? DTYPE_F32 : DTYPE_BF16));
        shape.num_seqs = 2;
        shape.lengths[0] = 330; /* two splits */
        shape.lengths[1] = 90;
        shape.chunk = kind == CAUSAL || kind == DOCUMENTS ? 100 : 0;
        shape.sliding_window = shape.other_window = kind == PREFIX ? 65 : kind == JOINED_DOCUMENTS ? 20 : 0;
        shape.window_of_both_sides = true;
        shape.distance_reach = kind == PREFIX && dim <= 256 ? 40 : 0;
        same_bits_of(isa, (enum kind)kind, shape);
    }
}

static void test_same_bits(void **state)
{
    (void)state;
    for_each_isa(same_bits);
}

/* A mask that says what no mask says, and documents that begin where sums do, leave the bits of sequences alone. */
static void like_sequences(const char *isa)
{
    enum { DOCUMENT = 256, NUM_DOCUMENTS = 2, LAST = 77, PORTABLE_TILE = 64 };
    struct random random = {.seed = test_seed()};
    struct rig_shape shape = rig_shape_of(2, 2, 64, DTYPE_BF16);
    size_t row = (size_t)(shape.num_heads * shape.head_dim);
    shape.num_seqs = 2;
    shape.lengths[0] = shape.lengths[1] = NUM_DOCUMENTS * DOCUMENT + LAST;
    struct rig *r = rig_new(isa, 2, &shape, shape.lengths[0], &random);
    if (on_gpu() && r->d->prefill_tile == PORTABLE_TILE) { /* what has a mask has a kernel of its own there */
        rig_free(r);
        return;
    }
    float *packed = room_for(r, shape.lengths[0]), *alone = room_for(r, shape.lengths[0]);
    struct mask_rows *keys = rig_mask(r, 0);
    for (int32_t begin = 0; begin < shape.lengths[0]; begin += DOCUMENT)
        mask_close(keys, begin, min_of(begin + DOCUMENT, shape.lengths[0]));
    rig_mask_done(r, 0);
    rig_mask(r, 1); /* causal */
    rig_mask_done(r, 1);
    rig_run(r, &(struct rig_part){.count = shape.lengths[0], .out = packed}, 1);
    for (int32_t begin = 0; begin < shape.lengths[0]; begin += DOCUMENT) {
        int32_t count = min_of((int32_t)DOCUMENT, shape.lengths[0] - begin);
        memcpy(r->data[1], r->data[0] + (size_t)begin * r->row, (size_t)count * r->row * sizeof(float));
        for (int masked = 0; masked < 2; masked++) {
            r->has_masks = masked;
            rig_run(r, &(struct rig_part){.seq = 1, .count = count, .out = alone}, 1);
            assert_int_equal(num_bits_different(packed + (size_t)begin * row, alone, (size_t)count * row), 0);
        }
    }
    free(packed);
    free(alone);
    rig_free(r);
}

static void test_like_sequences(void **state)
{
    (void)state;
    for_each_isa(like_sequences);
}

/* ---- long sequences ---- */

enum { LONG = 8500, LONG_ROWS = 200 }; /* the last rows are computed */

/* Tiles that all of the rows see, that some do and others do not, and that nobody sees, one behind the other. */
static void add_long_mask(struct rig *r)
{
    struct mask_rows *keys = rig_mask(r, 0);
    mask_close(keys, 700, 2900);
    for (int32_t j = 2900; j < 4100; j++) keys[j].end = LONG - LONG_ROWS / 2;
    mask_close(keys, 4200, 6000);
    for (int32_t j = 6100; j < 7000; j++) keys[j].end = LONG - LONG_ROWS + 70;
    for (int32_t j = 7700; j < 8250; j += 3) keys[j].end = LONG - LONG_ROWS + j % 150;
    rig_mask_done(r, 0);
}

/* Their bits, in steps of so many. */
static void run_last_rows(struct rig *r, int32_t most, float *out)
{
    size_t row = (size_t)(r->shape.num_heads * r->shape.head_dim);
    for (int32_t done = 0, count; done < LONG_ROWS; done += count) {
        count = min_of(most, LONG_ROWS - done);
        struct rig_part part = {.first = LONG - LONG_ROWS + done, .count = count, .out = out + done * row};
        rig_run(r, &part, 1);
    }
}

static void check_long(const char *isa, struct rig_shape shape, bool has_mask, struct random *random)
{
    struct rig *r = rig_new(isa, 1, &shape, LONG, random);
    struct rig_part last = {.first = LONG - LONG_ROWS, .count = LONG_ROWS, .out = room_for(r, LONG_ROWS)};
    float *other = room_for(r, LONG_ROWS);
    if (has_mask) add_long_mask(r);
    rig_run(r, &(struct rig_part){.count = last.first}, 1);
    run_last_rows(r, LONG_ROWS, last.out);
    rig_check(r, &last, 1, random);
    run_last_rows(r, 61, other);
    size_t count = (size_t)(LONG_ROWS * shape.num_heads * shape.head_dim);
    assert_int_equal(num_bits_different(last.out, other, count), 0);
    free(last.out);
    free(other);
    rig_free(r);
}

/* Without a mask it is a temperature that wants the kernel for masks, and what a causal row sees may be cut. */
static void long_ones(const char *isa)
{
    struct random random = {.seed = test_seed()};
    for (size_t d = 0; d < num_dims(); d++)
        for (int has_mask = 0; has_mask < 2; has_mask++) {
            if (!takes_part(2 * d + (size_t)has_mask)) continue;
            struct rig_shape shape = rig_shape_of(1, 1, dims[d], DTYPE_BF16);
            shape.num_seqs = 1;
            shape.lengths[0] = LONG;
            shape.temperature_scale = 0.1f;
            shape.temperature_floor = has_mask ? 0 : 512;
            shape.sliding_window = shape.other_window = d == 1 && has_mask ? 5000 : 0;
            check_long(isa, shape, has_mask, &random);
        }
}

static void test_long_ones(void **state)
{
    (void)state;
    if (!on_gpu()) return;
    for_each_isa(long_ones);
}

/* ---- bounds of tiles ---- */

static void test_classes_of_tiles(void **state)
{
    (void)state;
    struct mask_rows keys[150];
    struct mask_tile tiles[3];
    mask_causal(keys, 150);
    mask_close(keys, 0, 70);
    mask_fill_tiles(keys, 150, tiles);
    assert_int_equal(mask_num_tiles(150), 3);
    assert_int_equal(mask_class_of(&tiles[0], 63, 70), MASK_WHOLE);
    assert_int_equal(mask_class_of(&tiles[0], 62, 70), MASK_PARTIAL);
    assert_int_equal(mask_class_of(&tiles[0], 63, 71), MASK_PARTIAL);
    assert_int_equal(mask_class_of(&tiles[0], 70, 71), MASK_HIDDEN);
    assert_int_equal(mask_class_of(&tiles[1], 127, 150), MASK_PARTIAL); /* of two documents */
    assert_int_equal(mask_class_of(&tiles[2], 64, 128), MASK_HIDDEN);
    assert_int_equal(mask_class_of(&tiles[2], 149, 150), MASK_WHOLE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_reference), cmocka_unit_test(test_decodes),
        cmocka_unit_test(test_same_bits),         cmocka_unit_test(test_like_sequences),
        cmocka_unit_test(test_long_ones),         cmocka_unit_test(test_classes_of_tiles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Every family against transformers in float32 (family_goldens.h), from a directory and from a GGUF file: logits of 208
 * positions, as one prompt, in chunks, and decoded; and the same bits in every cut, beside a neighbour, in blocks that
 * an earlier run has filled.
 *
 * FLASHD_TEST_DEVICE=cuda runs them on a GPU, whose activations and K/V are bf16. FLASHD_TEST_FAMILIES: those alone whose names have it,
 * or one of several with | between them; without it FLASHD_TEST_PART=n: one in n of all, as kernels/fixture.h says. */
#include "family_files.h"

#include <math.h>

#include "family_goldens.h"
#include "kernels/fixture.h"
#include "model_session.h"
#include "quantised_goldens.h"

#ifdef FLASHD_DEBUG
enum { CUTS = 1 }; /* a sanitized build takes its time */
#else
enum { CUTS = 3 };
#endif

enum { STEP_TOKENS = FAMILY_TOKENS + 32, SEQS = 2 };

struct family_run {
    struct session session;
    char directory[TEST_PATH_BYTES];
    int32_t ids[FAMILY_TOKENS];
};

static const char *test_device(void)
{
    const char *name = getenv("FLASHD_TEST_DEVICE");
    return name ? name : "cpu";
}

static bool on_cpu(void)
{
    return !strcmp(test_device(), "cpu");
}

static void run_open_on(struct family_run *r, const struct family_golden *golden, bool gguf, const char *isa,
                        int threads, enum dtype kv_dtype, bool has_groups, int num_devices)
{
    char path[TEST_PATH_BYTES];
    make_directory(r->directory);
    if (gguf)
        family_write_gguf(golden, r->directory);
    else
        family_write_directory(golden, r->directory);
    for (int i = 0; i < FAMILY_TOKENS; i++) r->ids[i] = (i * 37 + 11) % FAMILY_VOCAB;
    struct session_options options = {.model_path =
                                          gguf ? join_path(path, r->directory, "m.gguf") : r->directory,
                                      .device = test_device(),
                                      .isa = isa,
                                      .threads = threads,
                                      .num_devices = num_devices,
                                      .kv_dtype = kv_dtype,
                                      .num_seqs = SEQS,
                                      .max_model_len = STEP_TOKENS,
                                      .num_batched_tokens = STEP_TOKENS,
                                      .num_logits = STEP_TOKENS,
                                      .has_groups = has_groups};
    session_open(&r->session, &options);
}

static void run_open(struct family_run *r, const struct family_golden *golden, bool gguf, const char *isa,
                     int threads, enum dtype kv_dtype, bool has_groups)
{
    run_open_on(r, golden, gguf, isa, threads, kv_dtype, has_groups, 0);
}

static void run_close(struct family_run *r)
{
    session_close(&r->session);
    remove_directory(r->directory);
}

/* Positions [begin, FAMILY_TOKENS) in steps of chunk tokens; those before are in the cache. */
struct cut {
    int32_t begin, chunk;
    bool decode;
    int32_t beside; /* tokens of another sequence in each step */
};

/* What a state has gone beyond is computed again; and K and V that others share, in a step that computes nothing else. */
static void go_back(struct family_run *r, int32_t begin)
{
    struct session_part part = {.num_tokens = begin, .tokens = r->ids, .no_logits = true};
    const struct model_config *c = model_config(r->session.model);
    if (begin == 0 || (!model_config_has_states(c) && c->num_kv_sharing_layers == 0)) return;
    session_step(&r->session, &part, 1);
    session_finish_step(&r->session);
}

static void run_logits(struct family_run *r, struct cut cut, float *logits)
{
    go_back(r, cut.begin);
    for (int32_t done = cut.begin; done < FAMILY_TOKENS; done += cut.chunk) {
        int32_t n = min_of(cut.chunk, FAMILY_TOKENS - done);
        struct session_part parts[2] = {
            {.seq = 1, .num_tokens = cut.beside, .tokens = r->ids + 3, .no_logits = true},
            {.seq = 0,
             .num_done = done,
             .num_tokens = n,
             .tokens = r->ids + done,
             .all_logits = true,
             .decode = cut.decode},
        };
        session_step(&r->session, cut.beside ? parts : parts + 1, cut.beside ? 2 : 1);
        for (int32_t i = 0; i < n; i++)
            session_logits(&r->session, i, logits + (size_t)(done + i) * FAMILY_VOCAB);
        session_finish_step(&r->session);
    }
}

/* How far logits are from the reference's. */
struct differences {
    float largest;
    int num, num_beyond; /* compared; beyond BOUND_ON_GPU */
};

#define BOUND_ON_CPU 2e-5f       /* all sum in f32 in different orders; logits are of size 1 to 5 */
#define BOUND_OF_QUANTISED 2e-4f /* random zero points make sums of one sign, in which f32 rounds more */
#define BOUND_ON_GPU 0.15f       /* activations are rounded to bf16 */

/* Of 20 logits so many may be further off on a GPU: where two experts are almost equal, rounding may make a token choose the other;
 * random zero points make sums of one sign. Of gpt-oss's GGUF file an early token does: on a CPU that rounds activations to bf16, too, 249
 * of 1,488 are further off. Token 15 of qwen3.5-moe does, and states remember it: 298. Of deepseek-v3's newer GGUF file 5 of 208 tokens do,
 * the last of them, all of whose logits are compared: 231. Of gemma 4 with experts two of six are chosen by a router behind norms of its own:
 * 558; where transformers computes in bf16, a quarter of the positions are further off. Of phi-3.5-moe 18 or more do, the last of them, too: 288; where transformers computes
 * in bf16, 36 do. Of mxfp8 a few large weights decide: 184, up to 0.74; where transformers computes in bf16 from the same weights, 7 of 100 of all
 * logits are further off, up to 1.3. */
enum {
    BEYOND_OF_EXPERTS = 1,
    BEYOND_OF_QUANTISED = 2,
    BEYOND_OF_LARGE_HEAD = 6, /* its logits are five times as large */
    BEYOND_OF_MXFP8 = 4,
    BEYOND_OF_GPT_OSS = 4,
    BEYOND_OF_DEEPSEEK = 4,
    BEYOND_OF_GEMMA_MOE = 8,
    BEYOND_OF_PHI_MOE = 5,
    BEYOND_OF_STATES = 5
};

static void add_difference(struct differences *d, float got, float expected)
{
    float difference = fabsf(got - expected);
    if (!(difference <= d->largest)) d->largest = difference;
    d->num_beyond += !(difference <= BOUND_ON_GPU);
    d->num++;
}

static void add_differences(struct differences *d, const struct family_golden *g, const float *logits)
{
    for (int p = 0; p < FAMILY_TOKENS; p++)
        add_difference(d, logits[p * FAMILY_VOCAB + p * 29 % FAMILY_VOCAB], g->picked[p]);
    for (int p = 0; p < FAMILY_WHOLE; p++)
        for (int v = 0; v < FAMILY_VOCAB; v++)
            add_difference(d, logits[family_positions[p] * FAMILY_VOCAB + v], g->whole[p * FAMILY_VOCAB + v]);
}

static void check(const struct family_golden *g, bool gguf, float bound)
{
    static float logits[FAMILY_TOKENS * FAMILY_VOCAB];
    static const struct cut cuts[] = {
        {.chunk = FAMILY_TOKENS}, {.chunk = 48}, {.begin = 96, .chunk = 1, .decode = true}};
    struct differences d = {0};
    struct family_run r;
    run_open(&r, g, gguf, "portable", 1, on_cpu() ? DTYPE_F32 : DTYPE_BF16, true);
    int num_allowed = strstr(g->config, "gpt_oss")                             ? BEYOND_OF_GPT_OSS
                      : strstr(g->name, "deepseek-v3, as newer")               ? BEYOND_OF_DEEPSEEK
                      : strstr(g->name, "gemma 4, stacked experts")            ? BEYOND_OF_GEMMA_MOE
                      : strstr(g->config, "phimoe")                            ? BEYOND_OF_PHI_MOE
                      : strstr(g->name, "mxfp8")                               ? BEYOND_OF_MXFP8
                      : strstr(g->name, "and the head")                        ? BEYOND_OF_LARGE_HEAD
                      : strstr(g->config, "quantization_config")               ? BEYOND_OF_QUANTISED
                      : model_config(r.session.model)->num_experts == 0        ? 0
                      : model_config_has_states(model_config(r.session.model)) ? BEYOND_OF_STATES
                                                                               : BEYOND_OF_EXPERTS;
    for (size_t i = 0; i < CUTS; i++) {
        run_logits(&r, cuts[i], logits);
        add_differences(&d, g, logits);
    }
    run_close(&r);
    print_message("%-9s %-42s %.2g\n", gguf ? "gguf" : "directory", g->name, (double)d.largest);
    bool right = on_cpu() ? d.largest <= bound : d.num_beyond * 20 <= num_allowed * d.num;
    if (!right)
        fail_msg("%s: logits differ by up to %g, %d of %d by more than %g", g->name, (double)d.largest,
                 d.num_beyond, d.num, (double)BOUND_ON_GPU);
}

static bool has_directory(const struct family_golden *g)
{
    return g->tensors[0].name != NULL;
}

/* Each of the names between | in FLASHD_TEST_FAMILIES, of which part is the first left; NULL behind the last. */
static const char *next_name(const char *part, size_t *len)
{
    *len = strcspn(part, "|");
    return part[*len] ? part + *len + 1 : NULL;
}

static bool has_name(const struct family_golden *g, const char *name, size_t len)
{
    return memmem(g->name, strlen(g->name), name, len) != NULL;
}

static bool is_wanted(const struct family_golden *g)
{
    const char *part = getenv("FLASHD_TEST_FAMILIES");
    bool is_any = !part;
    for (size_t len; part && !is_any;) {
        const char *next = next_name(part, &len);
        is_any = has_name(g, part, len);
        part = next;
    }
    return is_any;
}

static bool is_a_family(const char *name, size_t len)
{
    for (size_t g = 0; g < array_length(family_goldens); g++)
        if (has_name(&family_goldens[g], name, len)) return true;
    for (size_t g = 0; g < array_length(quantised_goldens); g++)
        if (has_name(&quantised_goldens[g], name, len)) return true;
    return false;
}

/* A name that none has would make every test pass. */
static int check_names(void **state)
{
    const char *part = getenv("FLASHD_TEST_FAMILIES");
    (void)state;
    for (size_t len; part;) {
        const char *next = next_name(part, &len);
        if (!is_a_family(part, len))
            fail_msg("FLASHD_TEST_FAMILIES: no family's name has \"%.*s\"", (int)len, part);
        part = next;
    }
    return 0;
}

/* Those that are asked for by name are all there. */
static bool has_part(size_t idx)
{
    return getenv("FLASHD_TEST_FAMILIES") || takes_part(idx);
}

/* On a GPU: families that have no kernels there; and quantised experts, of which rounding makes tokens choose others, but for gpt-oss's. */
static bool is_left_out(const struct family_golden *g)
{
    if (!is_wanted(g)) return true;
    const bool has_quantised_experts = strstr(g->config, "_experts\"") &&
                                       strstr(g->config, "quantization_config") &&
                                       !strstr(g->config, "gpt_oss");
    const bool has_no_kernels = !strncmp(g->name, "mimo", 4) || !strncmp(g->name, "minicpm 3", 9);
    return !on_cpu() && (has_quantised_experts || has_no_kernels);
}

static void logits_equal_transformers(void **state)
{
    (void)state;
    for (size_t i = 0; i < array_length(family_goldens); i++) {
        if (is_left_out(&family_goldens[i]) || !has_part(i)) continue;
        if (has_directory(&family_goldens[i])) check(&family_goldens[i], false, BOUND_ON_CPU);
        if (family_goldens[i].keys) check(&family_goldens[i], true, BOUND_ON_CPU);
    }
}

static const struct family_golden *golden_of(const char *name)
{
    for (size_t i = 0; i < array_length(family_goldens); i++)
        if (!strcmp(family_goldens[i].name, name)) return &family_goldens[i];
    fail_msg("there is no %s", name);
    return NULL;
}

/* Text models as checkpoints with images have them: a config and names deeper down. */
static void a_text_model_among_others_is_found(void **state)
{
    (void)state;
    static const struct {
        const char *golden, *class, *own, *deeper; /* names that begin with own begin with deeper there */
    } wrappers[] = {
        {"llama4", "Llama4ForConditionalGeneration", "", "language_model."},
        {"llama, dynamic rotation", "SmolVLMForConditionalGeneration", "model.", "model.text_model."},
        {"llama, dynamic rotation", "InternVLForConditionalGeneration", "", "language_model."},
        {"qwen3, a window from the second layer on", "LlavaForConditionalGeneration", "model.",
         "model.language_model."},
        {"lfm2", "Lfm2VlForConditionalGeneration", "model.", "model.language_model."},
        {"lfm3", "Lfm3VlForConditionalGeneration", "model.", "model.language_model."},
        {"gemma 4", "Gemma4ForConditionalGeneration", "model.", "model.language_model."},
        {"gemma 3n", "Gemma3nForConditionalGeneration", "model.", "model.language_model."},
        {"exaone 4", "Exaone4_5_ForConditionalGeneration", "model.", "model.language_model."},
        {"mistral 4, stacked experts", "Mistral3ForConditionalGeneration", "", "language_model."},
        {"qwen3-moe", "Qwen3OmniMoeForConditionalGeneration", "", "thinker."},
    };
    static char config[4096], names[192][96];
    static struct family_tensor tensors[192];
    for (size_t w = 0; w < array_length(wrappers); w++) {
        const struct family_golden *g = golden_of(wrappers[w].golden);
        const char *own = wrappers[w].own;
        const bool thinks = !strcmp(wrappers[w].deeper, "thinker.");
        struct family_golden inside = *g;
        assert_in_range(g->num_tensors, 1, array_length(tensors));
        for (size_t i = 0; i < g->num_tensors; i++) {
            const bool is_deeper = !strncmp(g->tensors[i].name, own, strlen(own));
            tensors[i] = g->tensors[i];
            snprintf(names[i], sizeof names[i], "%s%s", is_deeper ? wrappers[w].deeper : "",
                     g->tensors[i].name + (is_deeper ? strlen(own) : 0));
            tensors[i].name = names[i];
        }
        snprintf(config, sizeof config,
                 "{\"architectures\":[\"%s\"],%s\"text_config\":%s,\"vision_config\":{\"hidden_size\":8}}%s",
                 wrappers[w].class, thinks ? "\"thinker_config\":{" : "", g->config, thinks ? "}" : "");
        inside.config = config;
        inside.tensors = tensors;
        if (!is_left_out(&inside)) check(&inside, false, BOUND_ON_CPU);
    }
}

/* t of MLX's name, or, where it is of the first expert, what all have in its place; false: it is of another one. */
static bool take_mlx_name(struct family_tensor *t, char name[96], char shape[48])
{
    static const char *const roles[] = {"w1.weight", "w2.weight", "w3.weight"}, *const names[] = {
                                                                                    "gate_proj.weight",
                                                                                    "down_proj.weight",
                                                                                    "up_proj.weight"};
    enum { EXPERTS = 8 };
    for (size_t i = 0; i < array_length(roles); i++) {
        const char *experts = strstr(t->name, "experts."), *role = strstr(t->name, roles[i]);
        if (!role) continue;
        if (experts && experts[strlen("experts.")] != '0') return false;
        snprintf(name, 96, "%.*s%s%s", (int)((experts ? experts : role) - t->name), t->name,
                 experts ? "switch_mlp." : "", names[i]);
        t->name = name;
        if (!experts) continue;
        snprintf(shape, 48, "%d,%d,%d", EXPERTS, (int)t->rows, (int)t->cols);
        t->rows *= EXPERTS;
        t->dtype = "BF16";
        t->shape = shape;
    }
    return true;
}

/* LFM2-MoE's dense layers have other names there, too. */
static void layers_beside_mlx_experts_are_found(void **state)
{
    (void)state;
    static struct family_tensor tensors[192];
    static char names[192][96], shapes[192][48];
    char directory[TEST_PATH_BYTES];
    struct model_files *files = NULL;
    struct error err = {0};
    const struct family_golden *g = golden_of("lfm2-moe");
    struct family_golden own = *g;
    assert_in_range(g->num_tensors, 1, array_length(tensors));
    own.tensors = tensors;
    own.num_tensors = 0;
    for (size_t i = 0; i < g->num_tensors; i++) {
        struct family_tensor t = g->tensors[i];
        if (take_mlx_name(&t, names[i], shapes[i])) tensors[own.num_tensors++] = t;
    }
    make_directory(directory);
    family_write_directory(&own, directory);
    if (model_files_open(directory, "auto", &files, &err) != STATUS_OK) fail_msg("%s", err.text);
    const struct weight_view gate = model_files_weight(files, WEIGHT_GATE, 0),
                             expert = model_files_expert(files, WEIGHT_EXPERT_DOWN, 1, 7);
    assert_true(gate.data && gate.rows == 96 && expert.data && expert.rows == 256 && expert.cols == 48);
    model_files_close(files);
    remove_directory(directory);
}

/* As a directory that MLX's programs have written, whose convolutions are the other way round: they have multiplied the weights. */
static void weights_that_mlx_has_multiplied_are_refused(void **state)
{
    (void)state;
    static struct family_tensor tensors[192];
    static char shapes[192][32];
    char directory[TEST_PATH_BYTES];
    struct model_files *files = NULL;
    struct error err = {0};
    struct family_golden own = *golden_of("falcon-h1");
    assert_in_range(own.num_tensors, 1, array_length(tensors));
    for (size_t i = 0; i < own.num_tensors; i++) {
        tensors[i] = own.tensors[i];
        if (!strstr(tensors[i].name, "conv1d.weight")) continue;
        snprintf(shapes[i], sizeof shapes[i], "%d,%d,1", (int)tensors[i].rows, (int)tensors[i].cols);
        tensors[i].shape = shapes[i];
    }
    own.tensors = tensors;
    make_directory(directory);
    family_write_directory(&own, directory);
    assert_int_equal(model_files_open(directory, "auto", &files, &err), STATUS_UNSUPPORTED);
    assert_non_null(strstr(err.text, "weights that MLX has multiplied"));
    remove_directory(directory);
}

/* GGUF files of models that differ in their name alone, as of those with images the text models do. */
static void other_names_are_known(void **state)
{
    (void)state;
    static const struct {
        const char *golden, *own, *other;
    } names[] = {{"qwen3-moe", "qwen3moe", "qwen3vlmoe"},
                 {"mixtral", "llama", "granitemoe"},
                 {"bitnet", "bitnet", "bitnet-b1.58"},
                 {"bitnet", "bitnet", "bitnet-25"}};
    for (size_t i = 0; i < array_length(names); i++) {
        struct family_golden g = *golden_of(names[i].golden);
        struct family_key keys[32];
        char text[32][64];
        assert_in_range(g.num_keys, 1, array_length(keys));
        memcpy(keys, g.keys, g.num_keys * sizeof *keys);
        keys[0].text = names[i].other; /* general.architecture */
        for (size_t k = 1; k < g.num_keys; k++) {
            assert_memory_equal(keys[k].name, names[i].own, strlen(names[i].own));
            snprintf(text[k], sizeof text[k], "%s%s", names[i].other, keys[k].name + strlen(names[i].own));
            keys[k].name = text[k];
        }
        g.keys = keys;
        if (!is_left_out(&g)) check(&g, true, BOUND_ON_CPU);
    }
}

/* A GPU quantises the rows of x where products of e4m3 fit its kernels, which the reference does not (kernels/test_fp8.c). */
static bool quantises_rows(const struct family_golden *g)
{
    return !on_cpu() && !strcmp(g->name, "phi3: fp8, blocks");
}

/* A golden's directory with another shape, or another number of values, of a tensor; shape NULL, cols 0: as they are. */
static void expect_tensor_refused(const char *golden, const char *tensor, const char *shape, uint64_t cols,
                                  const char *sentence)
{
    struct family_golden g = *golden_of(golden);
    struct family_tensor tensors[128];
    char directory[TEST_PATH_BYTES];
    struct model_files *files = NULL;
    struct error err = {0};
    assert_true(g.num_tensors <= array_length(tensors));
    memcpy(tensors, g.tensors, g.num_tensors * sizeof *tensors);
    for (size_t i = 0; i < g.num_tensors; i++) {
        if (!strstr(tensors[i].name, tensor)) continue;
        if (shape) tensors[i].shape = shape;
        if (cols) tensors[i].cols = cols;
    }
    g.tensors = tensors;
    make_directory(directory);
    family_write_directory(&g, directory);
    assert_int_equal(model_files_open(directory, "auto", &files, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, sentence));
    remove_directory(directory);
}

/* As many rows, but not an expert's for each. */
static void stacks_of_other_experts_are_refused(void **state)
{
    (void)state;
    expect_tensor_refused("qwen3.5-moe, stacked experts", "layers.2.mlp.experts.down_proj", "12, 32, 32", 0,
                          "layers.2.mlp.experts.down_proj has 12 matrices where the config has 6");
}

/* A norm that a directory has head by head. */
static void a_head_without_its_norm_is_named(void **state)
{
    (void)state;
    expect_tensor_refused("stablelm 2, 12b", "layers.1.self_attn.k_layernorm.norms.1", NULL, 63,
                          "k_layernorm.norms.1.weight is missing, or has not 64 values");
}

/* The GGUF file of a golden whose tensors or keys have one more. */
static void expect_gguf_refused(const struct family_golden *g, const char *sentence)
{
    char directory[TEST_PATH_BYTES], path[TEST_PATH_BYTES];
    struct model_files *files = NULL;
    struct error err = {0};
    make_directory(directory);
    family_write_gguf(g, directory);
    assert_int_equal(model_files_open(join_path(path, directory, "m.gguf"), "auto", &files, &err),
                     STATUS_UNSUPPORTED);
    if (!strstr(err.text, sentence)) fail_msg("\"%s\"", err.text);
    remove_directory(directory);
}

/* BitNet's files of another gate, or of matrices with numbers that multiply them, as older ones are. */
static void other_bitnets_are_named(void **state)
{
    (void)state;
    struct family_golden g = *golden_of("bitnet, silu");
    struct family_tensor tensors[32];
    struct family_key keys[16];
    assert_true(g.num_tensors < array_length(tensors) && g.num_keys < array_length(keys));
    memcpy(tensors, g.tensors, g.num_tensors * sizeof *tensors);
    memcpy(keys, g.keys, g.num_keys * sizeof *keys);
    tensors[g.num_tensors] =
        (struct family_tensor){.gguf_name = "blk.1.ffn_up.scale", .cols = 1, .center = 0.5f};
    keys[g.num_keys] = (struct family_key){.name = "bitnet.hidden_activation", .text = "gelu"};
    g.tensors = tensors;
    g.keys = keys;
    g.num_tensors++;
    expect_gguf_refused(&g, "tensor blk.1.ffn_up.scale multiplies blk.1.ffn_up.weight");
    g.num_tensors--;
    g.num_keys++;
    expect_gguf_refused(&g, "hidden_activation is \"gelu\", which is not supported; silu and relu2 are");
}

/* The second expert's weight is that of two. */
static void a_sparse_mixture_of_three_is_named(void **state)
{
    (void)state;
    struct family_golden g = *golden_of("phi-3.5-moe, as GGUF files are");
    struct family_key keys[32];
    assert_true(g.num_keys <= array_length(keys));
    memcpy(keys, g.keys, g.num_keys * sizeof *keys);
    for (size_t i = 0; i < g.num_keys; i++)
        if (!strcmp(keys[i].name, "phimoe.expert_used_count")) keys[i].integer = 3;
    g.keys = keys;
    expect_gguf_refused(&g, "phimoe.expert_used_count is not supported unless it is 2");
}

/* Against the same weights unpacked. */
static void logits_of_quantised_weights_equal_transformers(void **state)
{
    (void)state;
    for (size_t i = 0; i < array_length(quantised_goldens); i++)
        if (has_part(i) && !is_left_out(&quantised_goldens[i]) && !quantises_rows(&quantised_goldens[i]))
            check(&quantised_goldens[i], false, BOUND_OF_QUANTISED);
}

/* Of the cuts those are with tables of layers that see a window or a chunk apart, the whole is with one table. */
static void check_cuts(const struct family_golden *golden)
{
    static const struct cut cuts[] = {{.chunk = FAMILY_TOKENS},
                                      {.chunk = 1, .decode = true},
                                      {.chunk = 33, .beside = 17},
                                      {.begin = 64, .chunk = 7},
                                      {.begin = 160, .chunk = 1, .decode = true, .beside = 3}};
    static float whole[FAMILY_TOKENS * FAMILY_VOCAB], cut[FAMILY_TOKENS * FAMILY_VOCAB];
    struct family_run r;
    if (is_left_out(golden)) return;
    run_open(&r, golden, !has_directory(golden), "auto", 1, DTYPE_BF16, false);
    run_logits(&r, cuts[0], whole);
    const bool has_windows = model_config(r.session.model)->sliding_window > 0;
    if (has_windows) {
        run_close(&r);
        run_open(&r, golden, !has_directory(golden), "auto", 1, DTYPE_BF16, true);
    }
    for (size_t c = has_windows ? 0 : 1; c < array_length(cuts); c++) {
        if (cuts[c].decode && !r.session.device->prefill_decode_equal) continue;
        memcpy(cut, whole, sizeof cut);
        memset(cut + cuts[c].begin * FAMILY_VOCAB, 0,
               (size_t)(FAMILY_TOKENS - cuts[c].begin) * FAMILY_VOCAB * sizeof *cut);
        run_logits(&r, cuts[c], cut);
        if (memcmp(whole, cut, sizeof whole))
            fail_msg("%s: steps of %d tokens from %d on beside %d others give other bits", golden->name,
                     cuts[c].chunk, cuts[c].begin, cuts[c].beside);
    }
    run_close(&r);
}

static void the_same_bits_in_every_cut(void **state)
{
    (void)state;
    for (size_t g = 0; g < array_length(family_goldens); g++)
        if (has_part(g)) check_cuts(&family_goldens[g]);
    for (size_t g = 0; g < array_length(quantised_goldens); g++)
        if (has_part(g)) check_cuts(&quantised_goldens[g]);
}

/* Prompts in steps of some tokens, the last ones by decode. */
static void run_on_devices(const struct family_golden *golden, int num_devices, float *logits)
{
    const struct cut prompts = {.chunk = 48, .beside = 17},
                     decode = {.begin = 192, .chunk = 1, .decode = true};
    struct family_run r;
    run_open_on(&r, golden, !has_directory(golden), "auto", 1, DTYPE_BF16, true, num_devices);
    run_logits(&r, prompts, logits);
    run_logits(&r, decode, logits);
    run_close(&r);
}

static void check_devices(const struct family_golden *golden)
{
    static float alone[FAMILY_TOKENS * FAMILY_VOCAB], together[FAMILY_TOKENS * FAMILY_VOCAB];
    static const int nums[] = {2, 4};
    if (is_left_out(golden)) return;
    run_on_devices(golden, 1, alone);
    for (size_t i = 0; i < array_length(nums); i++) {
        if (!on_cpu() && nums[i] > test_num_members()) continue; /* a CPU may be any number */
        run_on_devices(golden, nums[i], together);
        if (memcmp(alone, together, sizeof alone))
            fail_msg("%s: %d devices give other bits than one", golden->name, nums[i]);
    }
}

/* A group of devices has those of one. */
static void the_same_bits_on_several_devices(void **state)
{
    (void)state;
    for (size_t g = 0; g < array_length(family_goldens); g++)
        if (has_part(g)) check_devices(&family_goldens[g]);
    for (size_t g = 0; g < array_length(quantised_goldens); g++)
        if (has_part(g)) check_devices(&quantised_goldens[g]);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_equal_transformers),
        cmocka_unit_test(stacks_of_other_experts_are_refused),
        cmocka_unit_test(a_head_without_its_norm_is_named),
        cmocka_unit_test(other_bitnets_are_named),
        cmocka_unit_test(a_sparse_mixture_of_three_is_named),
        cmocka_unit_test(layers_beside_mlx_experts_are_found),
        cmocka_unit_test(weights_that_mlx_has_multiplied_are_refused),
        cmocka_unit_test(a_text_model_among_others_is_found),
        cmocka_unit_test(other_names_are_known),
        cmocka_unit_test(logits_of_quantised_weights_equal_transformers),
        cmocka_unit_test(the_same_bits_in_every_cut),
        cmocka_unit_test(the_same_bits_on_several_devices),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, check_names, NULL);
}

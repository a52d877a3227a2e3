#include "cli/inspect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "model/kv_layout.h"
#include "model/model_files.h"

/* One row of the table of operations: what a token costs in it. */
struct operation_cost {
    const char *name;
    double flop;    /* a token, all layers */
    uint64_t bytes; /* weights read a step, all layers */
};

static void add_weight(struct operation_cost *cost, struct weight_view v)
{
    if (!v.data) return;
    cost->flop += 2.0 * (double)weight_view_num_rows(&v) * (double)v.cols;
    cost->bytes += weight_view_bytes(&v);
}

static void add_layer(const struct model_files *f, int32_t layer, struct operation_cost *costs)
{
    static const struct {
        enum weight_role role;
        int row;
    } roles[] = {{WEIGHT_Q, 0},           {WEIGHT_K, 0},         {WEIGHT_V, 0},          {WEIGHT_O, 1},
                 {WEIGHT_GATE, 2},        {WEIGHT_UP, 2},        {WEIGHT_DOWN, 3},       {WEIGHT_ROUTER, 5},
                 {WEIGHT_SHARED_GATE, 2}, {WEIGHT_SHARED_UP, 2}, {WEIGHT_SHARED_DOWN, 3}};
    for (size_t i = 0; i < array_length(roles); i++)
        add_weight(&costs[roles[i].row], model_files_weight(f, roles[i].role, layer));
    for (int32_t e = 0; e < model_files_config(f)->num_chosen_experts; e++) { /* those of one token */
        add_weight(&costs[2], model_files_expert(f, WEIGHT_EXPERT_GATE, layer, e));
        add_weight(&costs[2], model_files_expert(f, WEIGHT_EXPERT_UP, layer, e));
        add_weight(&costs[3], model_files_expert(f, WEIGHT_EXPERT_DOWN, layer, e));
    }
}

static void print_operations(const struct model_files *f, const struct model_config *c)
{
    struct operation_cost costs[] = {{"q, k, v", 0, 0}, {"attention output", 0, 0}, {"gate, up", 0, 0},
                                     {"down", 0, 0},    {"LM head", 0, 0},          {"router", 0, 0}};
    for (int32_t layer = 0; layer < c->num_layers; layer++) add_layer(f, layer, costs);
    add_weight(&costs[4], model_files_weight(f, WEIGHT_LM_HEAD, 0));
    double flop = 0;
    uint64_t bytes = 0;
    printf("\n%-20s %14s %16s\n", "operation", "MFLOP/token", "weight MB/step");
    for (size_t i = 0; i < array_length(costs); i++) {
        printf("%-20s %14.2f %16.2f\n", costs[i].name, costs[i].flop / 1e6, (double)costs[i].bytes / 1e6);
        flop += costs[i].flop;
        bytes += costs[i].bytes;
    }
    double attention = 4.0 * c->num_heads * c->head_dim * c->num_layers; /* a token of context: q.k and p.v */
    printf("%-20s %14.2f %16.2f\n", "all products", flop / 1e6, (double)bytes / 1e6);
    printf("%-20s %14.5f %16s  a token of context\n", "attention", attention / 1e6, "-");
}

static const char *rope_text(enum rope_type type)
{
    static const char *const names[] = {"default", "linear", "llama3", "yarn", "longrope"};
    return names[type];
}

static void print_shapes(const struct config *config, const struct model_files *f,
                         const struct model_config *c)
{
    printf("%s\n\n", config->model);
    printf("family        %s (%s)\n", family_name(c->family), c->architecture);
    printf("parameters    %.1f million, %.1f MB as stored\n", (double)model_config_num_parameters(c) / 1e6,
           (double)model_files_weight_bytes(f) / 1e6);
    if (c->quantisation.format != QUANT_NONE)
        printf("quantised     %s%s\n", c->quantisation.name,
               c->quantisation.wants_quantised_activations
                   ? ", weights and activations; activations stay as they are but for FP8 on an H100 or H200"
                   : "");
    printf("layers        %d x hidden %d, MLP %d\n", c->num_layers, c->hidden_size, c->intermediate_size);
    if (c->num_experts)
        printf("experts       %d of %d a token, %d wide; shared %d\n", c->num_chosen_experts, c->num_experts,
               c->expert_intermediate_size, c->shared_intermediate_size);
    printf("attention     %d heads, %d K/V heads of %d%s%s\n", c->num_heads, c->num_kv_heads, c->head_dim,
           c->qk_norm ? ", q/k norm" : "", c->sliding_window ? ", sliding window" : "");
    printf("rope          %s, theta %g\n", rope_text(c->rope.type), c->rope.theta);
    printf("vocabulary    %d%s\n", c->vocab_size, c->tie_word_embeddings ? ", tied" : "");
    printf("context       %d tokens\n", c->max_position_embeddings);
}

/* Where layers have a window: what a token takes as long as all see it, and what goes with the window. */
static void print_kv_groups(const struct model_config *c)
{
    struct kv_layout l = kv_layout_of(c, c->max_position_embeddings);
    double kib =
        (double)model_config_kv_bytes_per_token(c, DTYPE_BF16) / c->num_layers * l.layers_per_block / 1024;
    if (l.window == 0) return;
    printf("K/V groups    %d of %d layers that keep all tokens, %.1f KiB a token\n", l.num_full,
           l.layers_per_block, l.num_full * kib);
    printf("              %d of %d layers that keep the last %d, %.1f KiB a token\n", l.num_windowed,
           l.layers_per_block, l.window, l.num_windowed * kib);
}

static void print_fit(const struct model_config *c, uint64_t weight_bytes)
{
    uint64_t memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t token_bytes = model_config_kv_bytes_per_token(c, DTYPE_BF16);
    uint64_t left = memory > weight_bytes ? memory - weight_bytes : 0;
    printf("\nK/V cache     %.1f KiB a token in bf16, %.1f KiB in f32\n", (double)token_bytes / 1024,
           (double)model_config_kv_bytes_per_token(c, DTYPE_F32) / 1024);
    print_kv_groups(c);
    printf("this machine  %.1f GiB of memory: the weights%s and about %.1f million tokens of bf16 K/V\n",
           (double)memory / (double)GIB, left ? " fit," : " do not fit,",
           (double)left / (double)max_of(token_bytes, (uint64_t)1) / 1e6);
}

int inspect_run(const struct config *config)
{
    struct model_files *files;
    struct error err = {0};
    if (model_files_open(config->model, config->load_format, &files, &err)) {
        fprintf(stderr, "flashd: %s\n", err.text);
        return EXIT_FAILURE;
    }
    const struct model_config *c = model_files_config(files);
    print_shapes(config, files, c);
    print_operations(files, c);
    print_fit(c, model_files_weight_bytes(files));
    model_files_close(files);
    return EXIT_SUCCESS;
}

#include "cli/inspect.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "cli/machine_probe.h"
#include "cli/model_cost.h"
#include "engine/load_files.h"
#include "model/kv_layout.h"

static void print_operations(const struct model_cost *m)
{
    double parameters = 0, active = 0, bytes = 0, active_bytes = 0;
    static const char row[] = "%-18s %13.2f %13.2f %13.2f %13.2f %13.2f\n";
    printf("\n%-18s %13s %13s %13s %13s %13s\n", "operation", "M parameters", "of a token", "MFLOP/token",
           "MB stored", "MB/token");
    for (int o = 0; o < NUM_OPERATIONS; o++) {
        double part = operation_parameters(m, o), of_token = operation_active_parameters(m, o);
        if (part == 0) continue;
        printf(row, model_operation_names[o], part / 1e6, of_token / 1e6, 2 * of_token / 1e6,
               operation_bytes(m, o) / 1e6, operation_active_bytes(m, o) / 1e6);
        parameters += part;
        active += of_token;
        bytes += operation_bytes(m, o);
        active_bytes += operation_active_bytes(m, o);
    }
    printf(row, "all products", parameters / 1e6, active / 1e6, 2 * active / 1e6, bytes / 1e6,
           active_bytes / 1e6);
    const struct model_config *c = m->config;
    double attention = 0; /* a token of context: q.k and p.v */
    for (int32_t i = 0; i < c->num_layers; i++) {
        const struct layer_config l = model_config_layer(c, i);
        if (model_config_has_attention(c, i)) attention += 4.0 * l.num_heads * l.head_dim;
    }
    printf("%-18s %13s %13s %13.5f %13s %13.5f  for each token before it, K/V in bf16\n", "attention", "", "",
           attention / 1e6, "", (double)model_config_kv_bytes_per_token(c, DTYPE_BF16) / 1e6);
}

static int32_t num_sparse_gates(const struct model_config *c)
{
    int32_t num = 0;
    for (int32_t i = 0; i < c->num_layers; i++) num += model_config_layer(c, i).has_sparse_gate;
    return num;
}

static const char *rope_text(enum rope_type type)
{
    static const char *const names[] = {"default", "linear", "llama3", "yarn", "longrope", "proportional"};
    return names[type];
}

static void print_vocabulary(const struct model_config *c)
{
    printf("vocabulary    %d%s\n", c->vocab_size, c->tie_word_embeddings ? ", tied" : "");
    printf("context       %d tokens\n", c->max_position_embeddings);
}

static void print_shapes(const struct config *config, const struct model_cost *m)
{
    const struct model_config *c = m->config;
    printf("%s\n\n", config_model_path(config));
    printf("family        %s (%s)\n", family_name(c->family), c->architecture);
    printf("parameters    %.1f million, %.1f MB as stored", m->parameters / 1e6, m->bytes / 1e6);
    if (c->num_experts) printf("; %.1f million for one token", m->active_parameters / 1e6);
    printf("\n");
    if (c->quantisation.format != QUANT_NONE)
        printf("quantised     %s%s\n", c->quantisation.name,
               c->quantisation.wants_quantised_activations
                   ? ", weights and activations; activations stay as they are but for FP8 and int8 on an "
                     "H100 or H200"
                   : "");
    if (c->family->has_states_alone) {
        printf("layers        %d x hidden %d, a state of %d x %d alone\n", c->num_layers, c->hidden_size,
               (int32_t)model_config_delta_width(c), c->delta_k_dim);
        print_vocabulary(c);
        return;
    }
    printf("layers        %d x hidden %d, MLP %s%d\n", c->num_layers, c->hidden_size,
           c->family->has_layer_shapes ? "up to " : "", c->intermediate_size);
    if (c->num_experts)
        printf("experts       %d of %d a token, %d wide; shared %d\n", c->num_chosen_experts, c->num_experts,
               c->expert_intermediate_size, c->shared_intermediate_size);
    printf("attention     %d heads, %d K/V heads of %d%s%s\n", c->num_heads, c->num_kv_heads, c->head_dim,
           c->qk_norm ? ", q/k norm" : "",
           !c->sliding_window      ? ""
           : c->windows_are_chunks ? ", attention in chunks"
                                   : ", sliding window");
    if (model_config_has_window_heads(c))
        printf("              with a window %d K/V heads of %d\n", c->window_heads.num_kv_heads,
               c->window_heads.head_dim);
    if (c->num_window_heads > 0 && c->num_window_heads != c->num_heads)
        printf("              with a window %d heads\n", c->num_window_heads);
    if (c->num_kv_sharing_layers > 0)
        printf("              K and V of the last %d layers are those of earlier ones\n",
               c->num_kv_sharing_layers);
    if (c->layer_embedding_dim > 0)
        printf("              a token adds %d values of its own to each layer\n", c->layer_embedding_dim);
    if (c->family->has_altup)
        printf("              %d residual streams (AltUp); beside attention a product of rank %d (LAuReL)\n",
               ALTUP_STREAMS, c->laurel_rank);
    if (c->family->has_altup && num_sparse_gates(c) > 0)
        printf("              %d MLPs' gates begin %.3f standard deviations above their mean\n",
               num_sparse_gates(c), (double)c->gate_cut);
    if (c->latent.rank > 0)
        printf("latents       rank %d, Q %d; a head's q and k %d + %d rotated, v %d; K/V are the latent with "
               "what is "
               "rotated, and the latent\n",
               c->latent.rank, c->latent.q_rank, c->latent.plain_dim, c->latent.rotary_dim,
               c->latent.value_dim);
    if (c->num_expert_groups > 1)
        printf("groups        experts of %d of %d\n", c->num_chosen_expert_groups, c->num_expert_groups);
    if (c->num_position_rows > 0)
        printf("positions     learned\n");
    else if (c->alibi_most > 0)
        printf("positions     scores fall with the distance (ALiBi, %g)\n", (double)c->alibi_most);
    else
        printf("rope          %s, theta %g\n", rope_text(c->rope.type), c->rope.theta);
    print_vocabulary(c);
}

/* Where layers have a window: what a token takes as long as all see it, and what goes with the window. */
static void print_kv_groups(const struct model_config *c)
{
    struct kv_layout l = kv_layout_of(c, c->max_position_embeddings);
    if (l.window == 0 || c->is_encoder) return;
    const double kib = (double)kv_layout_block_bytes(&l, c, DTYPE_BF16) / 1024;
    printf("K/V groups    %d of %d layers that keep all tokens, %.1f KiB a token\n", l.num_full,
           l.layers_per_block, l.num_full * kib);
    printf("              %d of %d layers that keep the last %d, %.1f KiB a token\n", l.num_windowed,
           l.windowed_per_block, l.window, l.num_windowed * kib);
}

static void print_fit(const struct config *config, const struct model_cost *m, uint64_t adapter_bytes)
{
    const struct model_config *c = m->config;
    uint64_t weight_bytes = (uint64_t)m->bytes + adapter_bytes;
    uint64_t memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t token_bytes = model_config_kv_bytes_per_token(c, DTYPE_BF16);
    uint64_t left = memory > weight_bytes ? memory - weight_bytes : 0;
    printf("\nK/V cache     %.1f KiB a token in bf16, %.1f KiB in f32, %.1f KiB in fp8 or int8\n",
           (double)token_bytes / 1024, (double)model_config_kv_bytes_per_token(c, DTYPE_F32) / 1024,
           (double)model_config_kv_bytes_per_token(c, DTYPE_I8) / 1024);
    print_kv_groups(c);
    if (model_config_has_states(c))
        printf(
            "states        %.1f MiB a running sequence and %.1f for its drafts, %.1f each that is kept for "
            "prompts that begin alike; of %d of %d "
            "layers\n",
            2 * (double)model_config_state_bytes(c) / (1 << 20),
            (double)model_config_draft_bytes(c, (int32_t)config->num_speculative_tokens) / (1 << 20),
            (double)model_config_state_bytes(c) / (1 << 20), model_config_num_stateful_layers(c),
            c->num_layers);
    printf("this machine  %.1f GiB of memory: the weights%s and about %.1f million tokens of bf16 K/V\n",
           (double)memory / (double)GIB, left ? " fit," : " do not fit,",
           (double)left / (double)max_of(token_bytes, (uint64_t)1) / 1e6);
}

/* ---- the roof ---- */

static void print_prediction(const struct model_cost *m, const struct machine *machine, const char *what,
                             int32_t num_seqs, int32_t num_new, int32_t num_done)
{
    struct step_work w = model_cost_step(m, num_seqs, num_new, num_done);
    double computing = w.flops / machine->flops_per_second, reading = w.bytes / machine->bytes_per_second;
    double seconds = fmax(computing, reading);
    printf("%-40s %10.3f ms %12.1f tokens/s, bound by %s\n", what, seconds * 1e3,
           num_seqs * num_new / seconds, computing > reading ? "products" : "memory");
}

static void print_roof(const struct model_cost *m, const struct machine *machine)
{
    enum { DONE = 1024, PROMPT = 2048, STREAMS = 32 };
    int32_t most = m->config->max_position_embeddings, done = min_of(most - 1, (int32_t)DONE),
            prompt = min_of(most, (int32_t)PROMPT);
    char what[64];
    printf("\nat most, on %s: %.1f GFLOP/s in products with these weights, ", machine->description,
           machine->flops_per_second / 1e9);
    if (machine->bytes_per_second == 0) {
        printf("memory's rate is not known (libflashd_lab.so is missing)\n");
        return;
    }
    printf("%.1f GB/s read, both measured now\n", machine->bytes_per_second / 1e9);
    if (!m->config->is_encoder) {
        snprintf(what, sizeof what, "decode, 1 stream behind %d tokens", done);
        print_prediction(m, machine, what, 1, 1, done);
        snprintf(what, sizeof what, "decode, %d streams behind %d tokens", STREAMS, done);
        print_prediction(m, machine, what, STREAMS, 1, done);
    }
    snprintf(what, sizeof what, "a prompt of %d tokens", prompt);
    print_prediction(m, machine, what, 1, prompt, 0);
}

/* What is known of the model was said: it is no failure when this machine cannot be measured. */
static void measure_roof(const struct config *config, const struct model_files *files,
                         const struct model_cost *m)
{
    struct machine machine;
    struct error err = {0};
    fflush(stdout); /* measuring takes a moment */
    if (!machine_probe(config, files, &machine, &err))
        print_roof(m, &machine);
    else
        fprintf(stderr, "flashd: what it would reach here is not known: %s\n", err.text);
}

int inspect_run(const struct config *config, bool measures)
{
    struct model_files *files;
    struct model_cost cost;
    struct error err = {0};
    if (load_files_open(config, NULL, &files, &err)) {
        fprintf(stderr, "flashd: %s\n", err.text);
        return EXIT_FAILURE;
    }
    model_cost_init(&cost, files, !strcmp(config->load_format, "dummy"));
    print_shapes(config, &cost);
    print_operations(&cost);
    if (model_files_num_loras(files) > 0)
        printf("\nadapters      %d, %.1f MB as stored beside the weights\n", model_files_num_loras(files),
               (double)model_files_lora_bytes(files) / 1e6);
    print_fit(config, &cost, model_files_lora_bytes(files));
    if (measures) measure_roof(config, files, &cost);
    model_files_close(files);
    return EXIT_SUCCESS;
}

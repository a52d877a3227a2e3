/* config.json and generation_config.json: the families as their makers publish them, old and new forms, and
 * what is refused. */
#include "unit/model/in_directory.h"

#include <math.h>

#include "base/bit_set.h"
#include "model/hf_config.h"
#include "model/kv_layout.h"

/* JSON with ' for quotes. */
static void write_json(const char *name, const char *text)
{
    char *copy = strdup(text);
    for (char *p = copy; *p; p++)
        if (*p == '\'') *p = '"';
    write_text(directory, name, copy);
    free(copy);
}

static struct model_config read_good(const char *config)
{
    struct model_config c;
    struct generation_defaults d;
    struct error err = {0};
    write_json("config.json", config);
    if (hf_config_read(directory, &c, &d, &err)) fail_msg("%s", err.text);
    return c;
}

static void expect_refusal(const char *config, int status, const char *part_of_sentence)
{
    struct model_config c;
    struct generation_defaults d;
    struct error err = {0};
    write_json("config.json", config);
    int got = hf_config_read(directory, &c, &d, &err);
    if (got != status || !strstr(err.text, part_of_sentence))
        fail_msg("expected %d and \"%s\", got %d and \"%s\"", status, part_of_sentence, got, err.text);
}

static const char llama_3_1[] =
    "{'architectures':['LlamaForCausalLM'],'attention_bias':false,'bos_token_id':128000,'eos_token_id':["
    "128001,128008,128009],"
    "'hidden_act':'silu','hidden_size':4096,'intermediate_size':14336,'max_position_embeddings':131072,'mlp_"
    "bias':false,"
    "'model_type':'llama','num_attention_heads':32,'num_hidden_layers':32,'num_key_value_heads':8,'"
    "pretraining_tp':1,"
    "'rms_norm_eps':1e-05,'rope_scaling':{'factor':8.0,'low_freq_factor':1.0,'high_freq_factor':4.0,"
    "'original_max_position_embeddings':8192,'rope_type':'llama3'},'rope_theta':500000.0,'tie_word_"
    "embeddings':false,"
    "'torch_dtype':'bfloat16','use_cache':true,'vocab_size':128256}";

static void reads_llama_3_1(void **state)
{
    (void)state;
    struct model_config c = read_good(llama_3_1);
    assert_string_equal(c.architecture, "LlamaForCausalLM");
    assert_string_equal(family_name(c.family), "llama");
    assert_true(c.hidden_size == 4096 && c.intermediate_size == 14336 && c.num_layers == 32 &&
                c.num_heads == 32);
    assert_true(c.num_kv_heads == 8 && c.head_dim == 128 && c.vocab_size == 128256 && c.sliding_window == 0);
    assert_true(c.max_position_embeddings == 131072 && c.rms_norm_eps == 1e-5f && !c.tie_word_embeddings);
    assert_true(!c.qk_norm && !c.qkv_bias && !c.o_bias);
    assert_true(c.rope.type == ROPE_LLAMA3 && c.rope.style == ROPE_HALVES && c.rope.theta == 500000);
    assert_true(c.rope.factor == 8 && c.rope.low_freq_factor == 1 && c.rope.high_freq_factor == 4);
    assert_true(c.rope.original_max_position == 8192 && c.rope.rotary_dim == 128);
    assert_true(c.num_eos_ids == 3 && c.eos_ids[0] == 128001 && c.eos_ids[2] == 128009 && c.bos_id == 128000);
    assert_int_equal(model_config_num_parameters(&c), 8030261248); /* as Meta counts them */
    assert_int_equal(model_config_largest_product(&c), 2 * 14336 * 4096);
    assert_int_equal(model_config_kv_bytes_per_token(&c, DTYPE_BF16), 128 << 10);
}

static void reads_both_forms_of_the_rotation_alike(void **state)
{
    (void)state;
    struct model_config old = read_good(llama_3_1);
    struct model_config new = read_good(
        "{'architectures':['LlamaForCausalLM'],'bos_token_id':128000,'eos_token_id':[128001,128008,128009],"
        "'hidden_size':4096,'intermediate_size':14336,'max_position_embeddings':131072,'num_attention_heads':"
        "32,"
        "'num_hidden_layers':32,'num_key_value_heads':8,'rms_norm_eps':1e-05,'rope_parameters':{'factor':8.0,"
        "'low_freq_factor':1.0,'high_freq_factor':4.0,'original_max_position_embeddings':8192,'rope_theta':"
        "500000.0,"
        "'rope_type':'llama3'},'dtype':'bfloat16','vocab_size':128256}");
    assert_memory_equal(&old, &new, sizeof old);
}

#define SCALED(fields)                                                                                       \
    "{'architectures':['LlamaForCausalLM'],'hidden_size':64,'intermediate_size':96,'num_attention_heads':2," \
    "'num_hidden_layers':2,'vocab_size':32,'max_position_embeddings':1024," fields "}"
#define YARN "'factor':4.0,'original_max_position_embeddings':256,'rope_type':'yarn'"

/* As guides to longer texts say, also where the config is of a time that has rope_parameters. */
static void a_scaling_added_by_hand_goes_before(void **state)
{
    (void)state;
    const struct model_config wanted = read_good(SCALED("'rope_theta':5e5,'rope_scaling':{" YARN "}"));
    const struct model_config added = read_good(
        SCALED("'rope_parameters':{'rope_theta':5e5,'rope_type':'default'},'rope_scaling':{" YARN "}"));
    const struct model_config empty =
        read_good(SCALED("'rope_scaling':{},'rope_parameters':{'rope_theta':5e5," YARN "}"));
    assert_int_equal(wanted.rope.type, ROPE_YARN);
    assert_memory_equal(&wanted, &added, sizeof added);
    assert_memory_equal(&wanted, &empty, sizeof empty);
}

static void reads_llama_2(void **state)
{
    (void)state;
    struct model_config c = read_good("{'architectures':['LlamaForCausalLM'],'bos_token_id':1,'eos_token_id':"
                                      "2,'hidden_act':'silu','hidden_size':4096,"
                                      "'intermediate_size':11008,'max_position_embeddings':4096,'model_type':"
                                      "'llama','num_attention_heads':32,"
                                      "'num_hidden_layers':32,'rms_norm_eps':1e-05,'rope_scaling':null,'tie_"
                                      "word_embeddings':false,'vocab_size':32000}");
    assert_true(c.num_kv_heads == 32 && c.rope.type == ROPE_DEFAULT && c.rope.theta == 10000);
    assert_true(c.num_eos_ids == 1 && c.eos_ids[0] == 2);
    assert_int_equal(model_config_num_parameters(&c), 6738415616);
}

static void reads_qwen_2_5(void **state)
{
    (void)state;
    struct model_config c = read_good(
        "{'architectures':['Qwen2ForCausalLM'],'bos_token_id':151643,'eos_token_id':151645,'hidden_act':'"
        "silu',"
        "'hidden_size':896,'intermediate_size':4864,'max_position_embeddings':32768,'max_window_layers':21,"
        "'model_type':'qwen2','num_attention_heads':14,'num_hidden_layers':24,'num_key_value_heads':2,"
        "'rms_norm_eps':1e-06,'rope_theta':1000000.0,'rope_scaling':{'factor':4.0,'original_max_position_"
        "embeddings':32768,"
        "'type':'yarn'},'sliding_window':32768,'tie_word_embeddings':true,'use_sliding_window':false,'vocab_"
        "size':151936}");
    assert_string_equal(family_name(c.family), "qwen2");
    assert_true(c.qkv_bias && !c.o_bias && !c.qk_norm && c.sliding_window == 0 && c.tie_word_embeddings);
    assert_true(c.rope.type == ROPE_YARN && c.rope.factor == 4 && c.rope.original_max_position == 32768);
    assert_true(c.rope.beta_fast == 32 && c.rope.beta_slow == 1 && !c.rope.yarn_keep_fractions);
    assert_true(fabs(c.rope.attention_factor - (0.1 * log(4) + 1)) < 1e-12);
    assert_int_equal(model_config_num_parameters(&c), 494032768);
}

static void reads_qwen_3(void **state)
{
    (void)state;
    struct model_config c = read_good(
        "{'architectures':['Qwen3ForCausalLM'],'attention_bias':false,'eos_token_id':151645,'head_dim':128,"
        "'hidden_act':'silu','hidden_size':1024,'intermediate_size':3072,'max_position_embeddings':40960,"
        "'max_window_layers':28,'model_type':'qwen3','num_attention_heads':16,'num_hidden_layers':28,"
        "'num_key_value_heads':8,'rms_norm_eps':1e-06,'rope_scaling':null,'rope_theta':1000000,'sliding_"
        "window':null,"
        "'tie_word_embeddings':true,'use_sliding_window':false,'vocab_size':151936}");
    assert_string_equal(family_name(c.family), "qwen3");
    assert_true(c.head_dim == 128 && c.rope.rotary_dim == 128 && c.qk_norm && !c.qkv_bias && c.bos_id == -1);
    assert_int_equal(model_config_num_parameters(&c), 596049920);
    assert_int_equal(model_config_kv_bytes_per_token(&c, DTYPE_BF16), 112 << 10);
}

#define MISTRAL(extra)                                                                                       \
    "{'architectures':['MistralForCausalLM'],'model_type':'mistral','hidden_size':4096,'intermediate_size':" \
    "14336,"                                                                                                 \
    "'num_attention_heads':32,'num_hidden_layers':32,'num_key_value_heads':8,'vocab_size':32000" extra "}"

static void reads_mistral_windows(void **state)
{
    (void)state;
    assert_int_equal(read_good(MISTRAL(",'sliding_window':4096")).sliding_window, 4096);
    assert_int_equal(read_good(MISTRAL(",'sliding_window':null")).sliding_window, 0);
    assert_int_equal(read_good(MISTRAL("")).sliding_window, 4096); /* the class's default */
}

#define QWEN(extra)                                                                                          \
    "{'architectures':['Qwen3ForCausalLM'],'hidden_size':64,'intermediate_size':64,'num_attention_heads':2," \
    "'num_hidden_layers':2,'num_key_value_heads':1,'vocab_size':320,'sliding_window':128,'use_sliding_"      \
    "window':true" extra "}"

static void expect_windows(const char *config, int32_t first, int32_t second)
{
    struct model_config c = read_good(config);
    assert_int_equal(model_config_layer(&c, 0).sliding_window, first);
    assert_int_equal(model_config_layer(&c, 1).sliding_window, second);
}

static void windows_are_a_layer_s_own(void **state)
{
    (void)state;
    expect_windows(QWEN(",'max_window_layers':0"), 128, 128);
    expect_windows(QWEN(",'max_window_layers':1"), 0, 128);
    expect_windows(QWEN(",'max_window_layers':2"), 0, 0);
    expect_windows(QWEN(",'layer_types':['sliding_attention','sliding_attention']"), 128, 128);
    expect_windows(QWEN(",'layer_types':['full_attention','full_attention']"), 0, 0);
    expect_windows(QWEN(",'layer_types':['full_attention','sliding_attention']"), 0, 128);
    expect_refusal(QWEN(",'layer_types':['full_attention','linear_attention']"), STATUS_UNSUPPORTED,
                   "linear_attention");
    expect_refusal(QWEN(",'layer_types':['full_attention']"), STATUS_INVALID, "1 entries for 2 layers");
}

static void generation_config_adds_eos_ids_and_defaults(void **state)
{
    (void)state;
    struct model_config c;
    struct generation_defaults d;
    struct error err = {0};
    read_good(QWEN(",'max_window_layers':2,'eos_token_id':300"));
    write_json(
        "generation_config.json",
        "{'bos_token_id':1,'do_sample':true,'eos_token_id':[300,301,9999999,-1],'temperature':0.6,'top_k':20,"
        "'top_p':0.95,'repetition_penalty':1.05,'min_p':null,'transformers_version':'4.51.0'}");
    if (hf_config_read(directory, &c, &d, &err)) fail_msg("%s", err.text);
    assert_true(c.num_eos_ids == 2 && c.eos_ids[0] == 300 && c.eos_ids[1] == 301);
    assert_true(d.temperature == 0.6f && d.top_k == 20 && d.top_p == 0.95f && d.repetition_penalty == 1.05f);
    assert_true(d.min_p < 0 && d.max_new_tokens < 0);
    write_json("generation_config.json", "{'temperature':'hot'}");
    assert_int_equal(hf_config_read(directory, &c, &d, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "generation_config.json: temperature should be"));
    write_json("generation_config.json", "{");
    assert_int_equal(hf_config_read(directory, &c, &d, &err), STATUS_INVALID);
}

static void nothing_is_given_without_generation_config(void **state)
{
    (void)state;
    struct model_config c;
    struct generation_defaults d;
    write_json("config.json", llama_3_1);
    assert_int_equal(hf_config_read(directory, &c, &d, NULL), 0);
    assert_memory_equal(&d, &generation_defaults_none, sizeof d);
}

/* As Scout's config.json is written: an empty list, a number for true, factors that are equal. */
static void reads_llama_4(void **state)
{
    (void)state;
    static const char text[] =
        "'model_type':'llama4_text','hidden_size':64,'intermediate_size':48,'intermediate_size_mlp':96,"
        "'num_attention_heads':4,'num_key_value_heads':2,'head_dim':16,'num_hidden_layers':8,'vocab_size':32,"
        "'interleave_moe_layer_step':2,'num_local_experts':16,'num_experts_per_tok':1,'no_rope_layers':[],"
        "'attn_temperature_tuning':4,'attention_chunk_size':8192,'moe_layers':null,"
        "'rope_scaling':{'rope_type':'llama3','factor':16.0,'low_freq_factor':1.0,'high_freq_factor':1.0,"
        "'original_max_position_embeddings':8192}";
    char config[2048];
    snprintf(config, sizeof config,
             "{'architectures':['Llama4ForConditionalGeneration'],'model_type':'llama4','text_config':{%s},"
             "'vision_config':{'hidden_size':7}}",
             text);
    struct model_config c = read_good(config);
    assert_true(c.qk_norm && c.windows_are_chunks && c.sliding_window == 8192 && !c.tie_word_embeddings);
    assert_true(c.intermediate_size == 96 && c.expert_intermediate_size == 48 &&
                c.shared_intermediate_size == 48 && c.num_experts == 16 && c.num_chosen_experts == 1);
    assert_true(c.rope.style == ROPE_PAIRS && c.rope.theta == 500000 && c.rms_norm_eps == 1e-5f);
    for (int32_t i = 0; i < 8; i++) {
        struct layer_config layer = model_config_layer(&c, i);
        assert_int_equal(layer.rope != NULL, i % 4 != 3);
        assert_int_equal(layer.is_chunk && layer.sliding_window == 8192 && layer.qk_norm, i % 4 != 3);
        assert_int_equal(layer.temperature_floor, i % 4 == 3 ? 8192 : 0);
        assert_int_equal(bit_set_has(c.sparse_layers, (size_t)i), i % 2);
    }
    snprintf(config, sizeof config,
             "{'architectures':['Llama4ForCausalLM'],%s,'layer_types':['sliding_attention']}", text);
    expect_refusal(config, STATUS_INVALID, "1 entries for 8 layers");
    snprintf(config, sizeof config,
             "{'architectures':['Llama4ForCausalLM'],'hidden_size':64,'intermediate_size':48,"
             "'num_hidden_layers':1,'num_local_experts':4,'num_experts_per_tok':1,'use_qk_norm':false,"
             "'layer_types':['sliding_attention']}");
    expect_refusal(config, STATUS_UNSUPPORTED, "\"full_attention\" and \"chunked_attention\" are supported");
}

/* Newer files have the text model's fields in an object of their own, older ones beside the rest. */
static void reads_text_models_of_wrappers(void **state)
{
    (void)state;
    static const char shape[] = "'hidden_size':64,'intermediate_size':96,'num_attention_heads':4,"
                                "'num_key_value_heads':2,'num_hidden_layers':2,'vocab_size':32";
    char config[1024];
    snprintf(config, sizeof config,
             "{'architectures':['Qwen2_5_VLForConditionalGeneration'],%s,'use_sliding_window':false,"
             "'rope_scaling':{'type':'mrope','mrope_section':[2,3,3]},'vision_config':{'hidden_size':7}}",
             shape);
    struct model_config c = read_good(config);
    assert_true(c.qkv_bias && !c.o_bias && c.rope.type == ROPE_DEFAULT && c.rope.rotary_dim == 16);
    snprintf(config, sizeof config,
             "{'architectures':['Mistral3ForConditionalGeneration'],'text_config':{'model_type':'qwen3',%s}}",
             shape);
    c = read_good(config);
    assert_true(c.qk_norm && c.num_layers == 2);
    assert_string_equal(c.architecture, "Qwen3ForCausalLM");
    snprintf(config, sizeof config,
             "{'architectures':['InternVLForConditionalGeneration'],'tie_word_embeddings':true,"
             "'text_config':{'model_type':'qwen2','tie_word_embeddings':false,%s}}",
             shape);
    assert_true(read_good(config).tie_word_embeddings);
    snprintf(config, sizeof config,
             "{'architectures':['InternVLForConditionalGeneration'],'tie_word_embeddings':false,"
             "'text_config':{'model_type':'qwen2','tie_word_embeddings':false,%s}}",
             shape);
    assert_false(read_good(config).tie_word_embeddings);
    expect_refusal(
        "{'architectures':['Mistral3ForConditionalGeneration'],'text_config':{'model_type':'llava'}}",
        STATUS_UNSUPPORTED, "no text model of a known type");
    expect_refusal(
        "{'architectures':['Mistral3ForConditionalGeneration'],'text_config':{'model_type':'rwkv'}}",
        STATUS_UNSUPPORTED, "\"rwkv\" is not supported");
    expect_refusal("{'architectures':['Mistral3ForConditionalGeneration'],'text_config':7}",
                   STATUS_UNSUPPORTED, "\"\" is not supported");
}

#define MINISTRAL(extra)                                                                                     \
    "{'model_type':'ministral3','hidden_size':64,'intermediate_size':96,'num_attention_heads':8,"            \
    "'num_hidden_layers':2,'vocab_size':32,'rope_parameters':{'rope_theta':1e6" extra "}}"

static void reads_ministral(void **state)
{
    (void)state;
    struct model_config c = read_good(MINISTRAL(",'rope_type':'yarn','factor':16,'original_max_position_"
                                                "embeddings':16384,'mscale':1,'mscale_all_dim':1,"
                                                "'llama_4_scaling_beta':0.1"));
    assert_true(c.rope.type == ROPE_YARN && c.rope.attention_factor == 1 && c.temperature_scale == 0.1f);
    assert_int_equal(model_config_layer(&c, 1).temperature_floor, 16384);
    c = read_good(MINISTRAL(""));
    assert_int_equal(model_config_layer(&c, 1).temperature_floor, 0);
    expect_refusal(MINISTRAL(",'llama_4_scaling_beta':0.1"), STATUS_INVALID,
                   "without original_max_position_embeddings");
}

/* What LayerNorm may be of, and what stands beside attention. */
static void refuses_other_layer_norms(void **state)
{
    (void)state;
#define LAYER_NORMS(type, extra)                                                                             \
    "{'model_type':'" type "','hidden_size':64,'intermediate_size':96,'num_attention_heads':4,"              \
    "'num_hidden_layers':2,'vocab_size':32" extra "}"
    expect_refusal(LAYER_NORMS("cohere2", ",'use_qk_norm':true"), STATUS_UNSUPPORTED, "use_qk_norm is set");
    expect_refusal(LAYER_NORMS("orion", ",'qk_layernorm':true"), STATUS_UNSUPPORTED, "qk_layernorm is set");
    expect_refusal(LAYER_NORMS("orion", ",'use_parallel_residual':true"), STATUS_UNSUPPORTED,
                   "use_parallel_residual is set");
    assert_true(read_good(LAYER_NORMS("cohere", ",'use_qk_norm':true")).qk_norm);
    assert_false(read_good(LAYER_NORMS("cohere", "")).qk_norm);
    struct model_config c =
        read_good(LAYER_NORMS("stablelm", ",'qk_layernorm':true,'use_parallel_residual':true"));
    assert_true(c.qk_norm && c.is_parallel && !weight_may_be(c.family->weight_changes, WEIGHT_MLP_NORM));
    c = read_good(LAYER_NORMS("stablelm", ",'use_parallel_residual':false"));
    assert_true(!c.qk_norm && !c.is_parallel && weight_may_be(c.family->weight_changes, WEIGHT_MLP_NORM));
}

#define DEEPSEEK(extra)                                                                                      \
    "{'architectures':['DeepseekV3ForCausalLM'],'hidden_size':64,'intermediate_size':96,"                    \
    "'num_attention_heads':4,'num_key_value_heads':4,'num_hidden_layers':5,'vocab_size':32,"                 \
    "'kv_lora_rank':512,'q_lora_rank':null,'qk_nope_head_dim':128,'qk_rope_head_dim':64,'v_head_dim':128,"   \
    "'n_routed_experts':16,'num_experts_per_tok':4,'moe_intermediate_size':32,'n_shared_experts':2,"         \
    "'first_k_dense_replace':3" extra "}"

/* As GLM-4.7-Flash has them: hidden_size is no multiple of its heads. */
static void reads_glm_4_7_flash(void **state)
{
    (void)state;
    struct model_config c = read_good(
        "{'architectures':['Glm4MoeLiteForCausalLM'],'model_type':'glm4_moe_lite','hidden_size':2048,"
        "'intermediate_size':10240,'num_attention_heads':20,'num_key_value_heads':20,'num_hidden_layers':47,"
        "'vocab_size':154880,'kv_lora_rank':512,'q_lora_rank':768,'qk_nope_head_dim':192,'qk_rope_head_dim':"
        "64,"
        "'v_head_dim':256,'n_routed_experts':64,'num_experts_per_tok':4,'moe_intermediate_size':1536,"
        "'n_shared_experts':1,'first_k_dense_replace':1,'n_group':1,'topk_group':1,'norm_topk_prob':true,"
        "'partial_rotary_factor':1.0,'rope_scaling':null,'rope_theta':1000000,'routed_scaling_factor':1.8,"
        "'num_nextn_predict_layers':1,'topk_method':'noaux_tc','rms_norm_eps':1e-05}");
    assert_true(c.num_heads == 20 && c.head_dim == 576 && c.latent.q_rank == 768 &&
                c.latent.value_dim == 256);
}

static void reads_deepseek(void **state)
{
    (void)state;
    struct model_config c = read_good(
        DEEPSEEK(",'n_group':4,'topk_group':2,'topk_method':'noaux_tc','scoring_func':'sigmoid',"
                 "'routed_scaling_factor':2.5,'rope_scaling':{'type':'yarn','factor':40,'mscale':1.0,"
                 "'mscale_all_dim':1.0,'original_max_position_embeddings':4096}"));
    const struct latent_config *l = &c.latent;
    assert_true(l->rank == 512 && l->q_rank == 0 && l->plain_dim == 128 && l->rotary_dim == 64 &&
                l->value_dim == 128 && !l->is_split);
    assert_true(c.num_kv_heads == 1 && c.head_dim == 576 && c.rope.rotary_dim == 64);
    assert_true(c.rope.style == ROPE_PAIRS && c.rope.attention_factor == 1);
    const double mscale = 0.1 * log(40) + 1;
    assert_true(fabs((double)c.attention_scale - mscale * mscale / sqrt(192)) < 1e-7);
    assert_true(c.num_expert_groups == 4 && c.num_chosen_expert_groups == 2 && c.has_router_bias &&
                c.router_scores == ROUTER_SIGMOID && c.router_normalizes);
    assert_true(c.shared_intermediate_size == 64 && !bit_set_has(c.sparse_layers, 2) &&
                bit_set_has(c.sparse_layers, 3));
    c = read_good(DEEPSEEK(",'rope_interleave':false"));
    assert_true(c.rope.style == ROPE_HALVES && c.num_expert_groups == 1);
    expect_refusal(DEEPSEEK(",'attention_bias':true"), STATUS_UNSUPPORTED, "attention_bias is set");
    expect_refusal(DEEPSEEK(",'n_group':5,'topk_group':2"), STATUS_INVALID,
                   "4 of 16 experts cannot come from 2 of 5 groups");
    expect_refusal(DEEPSEEK(",'n_group':8,'topk_group':1"), STATUS_INVALID, "cannot come from 1 of 8 groups");
    expect_refusal(DEEPSEEK(",'n_group':4,'topk_group':5"), STATUS_INVALID,
                   "number of groups of a token is 5");
    expect_refusal(DEEPSEEK(",'topk_method':'greedy'"), STATUS_UNSUPPORTED, "topk_method \"greedy\"");
    expect_refusal(DEEPSEEK(",'scoring_func':'softmax'"), STATUS_UNSUPPORTED, "scoring_func \"softmax\"");
}

#define NEMOTRON_H(blocks, extra)                                                                            \
    "{'architectures':['NemotronHForCausalLM'],'hidden_size':64,'intermediate_size':64,"                     \
    "'num_attention_heads':8,'vocab_size':32,'mamba_num_heads':8," blocks extra "}"

/* As NVIDIA-Nemotron-Nano-9B-v2 has them. */
static void reads_nemotron_h(void **state)
{
    (void)state;
    struct model_config c = read_good(
        "{'architectures':['NemotronHForCausalLM'],'model_type':'nemotron_h','hidden_size':4480,"
        "'intermediate_size':15680,'num_attention_heads':40,'num_key_value_heads':8,'head_dim':128,"
        "'num_hidden_layers':56,'vocab_size':131072,'max_position_embeddings':131072,"
        "'hybrid_override_pattern':'M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-',"
        "'mamba_num_heads':128,'mamba_head_dim':80,'n_groups':8,'ssm_state_size':128,'conv_kernel':4,"
        "'expand':2,'layer_norm_epsilon':2e-05,'mlp_hidden_act':'relu2','mamba_hidden_act':'silu',"
        "'time_step_limit':[0.0,Infinity],'time_step_min':0.001,'use_conv_bias':true,'use_bias':false,"
        "'mamba_proj_bias':false,'attention_bias':false,'mlp_bias':false,'tie_word_embeddings':false}");
    assert_int_equal(c.num_layers, 31); /* 27 of 56 have a state, 4 attention; 25 are MLPs */
    assert_int_equal(model_config_num_attention_layers(&c, 31), 4);
    assert_int_equal(model_config_num_parameters(&c), 8888227328); /* as its makers count them */
    assert_true(c.rms_norm_eps == 2e-05f && c.head_dim == 128 && c.delta_v_dim == 80 && c.delta_k_heads == 8);
    assert_true(bit_set_has(c.layers_without_mlp, 3) && !bit_set_has(c.layers_without_mlp, 4));
    assert_true(!bit_set_has(c.stateful_layers, 8) && !model_config_layer(&c, 8).rope);
    assert_true(model_config_layer_in_file(&c, 3) == 6 && model_config_layer_in_file(&c, 4) == 7 &&
                model_config_layer_in_file(&c, 30) == 54);
    c = read_good(NEMOTRON_H("'layers_block_type':['linear_attention','mlp','full_attention']",
                             ",'time_step_limit':[0.0,{'__float__':'Infinity'}],'attention_head_dim':16"));
    assert_true(c.num_layers == 2 && c.head_dim == 16 && bit_set_has(c.layers_without_mlp, 1));
}

#define NEMOTRON_EXPERTS ",'n_routed_experts':8,'num_experts_per_tok':3"

/* As NVIDIA-Nemotron-3-Nano-30B-A3B has them. */
static void reads_nemotron_3(void **state)
{
    (void)state;
    struct model_config c = read_good(
        "{'architectures':['NemotronHForCausalLM'],'model_type':'nemotron_h','hidden_size':2688,"
        "'intermediate_size':1856,'num_attention_heads':32,'num_key_value_heads':2,'head_dim':128,"
        "'num_hidden_layers':52,'vocab_size':131072,'max_position_embeddings':262144,"
        "'hybrid_override_pattern':'MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME',"
        "'mamba_num_heads':64,'mamba_head_dim':64,'n_groups':8,'ssm_state_size':128,'conv_kernel':4,"
        "'expand':2,'layer_norm_epsilon':1e-05,'norm_eps':1e-05,'mlp_hidden_act':'relu2',"
        "'n_routed_experts':128,'num_experts_per_tok':6,'n_shared_experts':1,'moe_intermediate_size':1856,"
        "'moe_shared_expert_intermediate_size':3712,'routed_scaling_factor':2.5,'norm_topk_prob':true,"
        "'n_group':1,'topk_group':1,'moe_latent_size':null,'time_step_limit':[0.0,Infinity]}");
    assert_int_equal(c.num_layers, 29); /* 23 of 52 have a state, 6 attention; 23 are experts */
    assert_int_equal(model_config_num_attention_layers(&c, 29), 6);
    /* as its makers count them, and the biases by which experts are chosen */
    assert_int_equal(model_config_num_parameters(&c), 31577937344 + 23 * 128);
    assert_int_equal(model_config_largest_product(&c), 128 * 1856 * 2688); /* they have no gate */
    assert_true(c.num_experts == 128 && c.num_chosen_experts == 6 && c.expert_intermediate_size == 1856);
    assert_true(c.shared_intermediate_size == 3712 && c.num_expert_groups == 1 && c.has_router_bias);
    assert_true(c.router_scores == ROUTER_SIGMOID && c.router_normalizes && c.router_scale == 2.5f);
    assert_true(bit_set_has(c.sparse_layers, 1) && !bit_set_has(c.sparse_layers, 2));
    assert_true(bit_set_has(c.layers_without_mlp, 2) && bit_set_has(c.sparse_layers, 3));
    /* Super's experts have a space of their own */
    c = read_good(NEMOTRON_H("'hybrid_override_pattern':'M-*E'", NEMOTRON_EXPERTS ",'moe_latent_size':1024"));
    assert_int_equal(c.expert_hidden_size, 1024);
    expect_refusal(NEMOTRON_H("'hybrid_override_pattern':'M-*E'", NEMOTRON_EXPERTS ",'moe_latent_size':0"),
                   STATUS_INVALID, "moe_latent_size should be an integer from 1");
    /* what newer programs write for models that have none */
    c = read_good(NEMOTRON_H("'hybrid_override_pattern':'M-*'", NEMOTRON_EXPERTS ",'moe_latent_size':null"));
    assert_true(c.num_experts == 0 && !model_config_has_sparse_layers(&c));
}

#define MODERNBERT(extra)                                                                                    \
    "{'architectures':['ModernBertModel'],'attention_bias':false,'classifier_pooling':'mean',"               \
    "'hidden_activation':'gelu','hidden_size':768,'intermediate_size':1152,'local_attention':128,"           \
    "'max_position_embeddings':8192,'mlp_bias':false,'norm_bias':false,'norm_eps':1e-05,"                    \
    "'num_attention_heads':12,'num_hidden_layers':22,'vocab_size':50368" extra "}"

static void reads_modernbert(void **state)
{
    (void)state;
    struct model_config c = read_good(MODERNBERT(
        ",'global_attn_every_n_layers':3,'global_rope_theta':160000.0,'local_rope_theta':12000.0"));
    assert_int_equal(model_config_num_parameters(&c), 149014272); /* as its makers count them */
    assert_true(c.sliding_window == 65 && c.rope.theta == 160000 && c.window_rope.theta == 12000);
    assert_true(c.rms_norm_eps == 1e-5f && c.num_position_rows == 0 && c.num_type_rows == 0);
    assert_true(c.pooling == POOLING_MEAN && c.score_pooling == POOLING_FIRST); /* it has no head */
    for (size_t i = 0; i < 22; i++) assert_true(bit_set_has(c.windowed_layers, i) == (i % 3 != 0));
    c = read_good(MODERNBERT(",'global_attn_every_n_layers':2"));
    assert_true(c.rope.theta == 160000 && c.window_rope.theta == 10000);
    assert_true(!bit_set_has(c.windowed_layers, 2) && bit_set_has(c.windowed_layers, 3));
    c = read_good(MODERNBERT(",'global_attn_every_n_layers':1"));
    for (size_t i = 0; i < 22; i++) assert_true(!bit_set_has(c.windowed_layers, i));
    expect_refusal(MODERNBERT(",'global_attn_every_n_layers':0"), STATUS_INVALID,
                   "global_attn_every_n_layers");
    expect_refusal(MODERNBERT(",'layer_types':['full_attention']"), STATUS_INVALID, "1 entries for 22");
}

#define NOMIC(extra)                                                                                         \
    "{'architectures':['NomicBertModel'],'activation_function':'swiglu','causal':false,"                     \
    "'layer_norm_epsilon':1e-12,'max_trained_positions':2048,'mlp_fc1_bias':false,'mlp_fc2_bias':false,"     \
    "'n_embd':768,'n_head':12,'n_inner':3072,'n_layer':12,'n_positions':8192,'pad_vocab_size_multiple':64,"  \
    "'prenorm':false,'qkv_proj_bias':false,'rotary_emb_base':1000,'rotary_emb_fraction':1.0,"                \
    "'rotary_emb_scale_base':null,'type_vocab_size':2,'vocab_size':30522" extra "}"

static void reads_nomic_bert(void **state)
{
    (void)state;
    struct model_config c = read_good(NOMIC(",'rotary_scaling_factor':null"));
    assert_int_equal(model_config_num_parameters(&c), 136731648); /* as its makers count them */
    assert_true(c.vocab_size == 30528 && c.rope.theta == 1000 && c.max_position_embeddings == 8192);
    assert_true(c.num_position_rows == 0 && c.num_type_rows == 2 && c.sliding_window == 0);
    c = read_good(NOMIC(",'rotary_scaling_factor':2"));
    assert_int_equal(c.max_position_embeddings, 2048);
    expect_refusal(NOMIC(",'rotary_emb_interleaved':true"), STATUS_UNSUPPORTED,
                   "rotary_emb_interleaved is set");
}

#define LLAMA(extra)                                                                                         \
    "{'architectures':['LlamaForCausalLM'],'hidden_size':64,'intermediate_size':64,'num_attention_heads':2," \
    "'num_hidden_layers':2,'vocab_size':32" extra "}"

#define STATE_SPACE(types, extra)                                                                            \
    "{'architectures':['GraniteMoeHybridForCausalLM'],'hidden_size':64,'intermediate_size':64,"              \
    "'num_attention_heads':2,'num_hidden_layers':2,'vocab_size':32,'mamba_n_heads':4,'layer_types':[" types  \
    "]" extra "}"
#define NO_EXPERTS ",'num_local_experts':0"

/* The first of two fields counts. */
#define JAMBA(fields)                                                                                        \
    "{" fields "'architectures':['JambaForCausalLM'],'hidden_size':64,'intermediate_size':96,"               \
    "'num_attention_heads':4,'num_key_value_heads':2,'num_hidden_layers':2,'vocab_size':32,"                 \
    "'num_experts':4,'num_experts_per_tok':2,'attn_layer_period':2,'attn_layer_offset':1}"

#define FALCON_H1(extra)                                                                                     \
    "{'architectures':['FalconH1ForCausalLM'],'hidden_size':64,'intermediate_size':64,"                      \
    "'num_attention_heads':4,'num_hidden_layers':2,'num_key_value_heads':2,'vocab_size':32,"                 \
    "'mamba_d_ssm':96,'mamba_n_heads':6,'mamba_d_head':16,'mamba_d_state':16" extra "}"

/* Numbers that stand for others: of a norm, and what makes up for that behind. */
static void reads_falcon_h1(void **state)
{
    (void)state;
    struct model_config c = read_good(
        FALCON_H1(",'key_multiplier':0.5,'attention_in_multiplier':3,'attention_out_multiplier':0.5,"
                  "'ssm_in_multiplier':4,'ssm_out_multiplier':0.125,'ssm_multipliers':[0.5,1,2,3,4],"
                  "'mlp_multipliers':[2,8],'embedding_multiplier':5,'lm_head_multiplier':0.25"));
    const struct branch_scales *s = &c.scales;
    assert_true(model_config_num_attention_layers(&c, 2) == 2 && model_config_num_stateful_layers(&c) == 2);
    assert_true(c.states_have_no_norm && c.delta_k_heads == 1 && model_config_mixed_width(&c, 1) == 64);
    assert_true(s->norm == 2 && s->v == 2 && s->k == 4 && s->q == 6 && s->steps == 8 && s->state == 0.125f);
    assert_true(s->attention == 0.75f && c.attention_scale == 2.25f * 0.5f / 4);
    assert_true(s->mlp_norm == 2 && s->mlp == 4 && c.embedding_scale == 5 && c.logit_scale == 0.25f);
    c = read_good(FALCON_H1(",'mamba_rms_norm':true,'mamba_norm_before_gate':false"));
    assert_true(!c.states_have_no_norm && c.scales.norm == 1 && c.attention_scale == 0.25f);
    expect_refusal(FALCON_H1(",'ssm_multipliers':[1,1,1,1]"), STATUS_INVALID, "list of 5 positive numbers");
    expect_refusal(FALCON_H1(",'mlp_multipliers':[1,0]"), STATUS_INVALID, "list of 2 positive numbers");
}

#define MAMBA(fields)                                                                                        \
    "{" fields "'architectures':['FalconMambaForCausalLM'],'hidden_size':64,'num_hidden_layers':3,"          \
    "'vocab_size':32,'expand':16,'intermediate_size':128}"

#define MAMBA_2(fields)                                                                                      \
    "{" fields "'architectures':['Mamba2ForCausalLM'],'hidden_size':64,'num_hidden_layers':3,"               \
    "'vocab_size':32,'expand':2,'num_heads':8,'head_dim':16,'n_groups':2,'state_size':24,"                   \
    "'time_step_limit':[0.0,Infinity]}"

/* Blocks of K/V are there, as small as they can be: for the places of tokens, by which prompts that begin alike are known. */
static void reads_a_model_of_states_alone(void **state)
{
    (void)state;
    struct model_config c = read_good(MAMBA(""));
    const struct kv_layout layout = kv_layout_of(&c, 1024);
    assert_true(model_config_num_attention_layers(&c, 3) == 0 && model_config_num_stateful_layers(&c) == 3);
    assert_true(c.delta_v_heads * c.delta_v_dim == 128 && c.delta_k_dim == 16 && c.delta_step_rank == 4);
    assert_true(c.norms_selection && c.tie_word_embeddings && c.max_position_embeddings == 131072);
    assert_true(kv_layout_num_groups(&layout) == 1 && layout.layers_per_block == 1);
    assert_int_equal(model_config_kv_bytes_per_token(&c, DTYPE_BF16), 64);
    c = read_good(MAMBA_2(""));
    assert_true(c.num_heads == 1 && c.delta_v_heads == 8 && c.delta_k_heads == 2 && c.delta_v_dim == 16);
    assert_true(!c.tie_word_embeddings && model_config_num_stateful_layers(&c) == 3);
    assert_int_equal(model_config_kv_bytes_per_token(&c, DTYPE_BF16), 64);
    expect_refusal(MAMBA_2("'num_heads':4,"), STATUS_INVALID, "num_heads times head_dim should be 128");
}

/* Which layers have attention, and which experts, stands in periods. */
static void reads_jamba(void **state)
{
    (void)state;
    struct model_config c = read_good(JAMBA(""));
    assert_true(bit_set_has(c.stateful_layers, 0) && !bit_set_has(c.stateful_layers, 1));
    assert_true(!bit_set_has(c.sparse_layers, 0) && bit_set_has(c.sparse_layers, 1) &&
                bit_set_has(c.unrotated_layers, 1));
    assert_int_equal(c.delta_v_heads * c.delta_v_dim, 128);
    assert_int_equal(c.delta_step_rank, 4);
    assert_int_equal(c.delta_k_dim, 16);
    assert_int_equal(read_good(JAMBA("'num_experts':1,")).num_experts, 0);
}

#define OLMO_HYBRID(extra)                                                                                   \
    "{'architectures':['OlmoHybridForCausalLM'],'hidden_size':3840,'intermediate_size':11008,"               \
    "'num_attention_heads':30,'num_hidden_layers':32,'vocab_size':100352" extra "}"

/* As Olmo-Hybrid-7B has them. */
static void reads_olmo_hybrid(void **state)
{
    (void)state;
    struct model_config c =
        read_good(OLMO_HYBRID(",'rope_parameters':{'rope_type':'default','rope_theta':null}"));
    assert_true(c.delta_k_heads == 30 && c.delta_v_heads == 30 && c.delta_k_dim == 96 &&
                c.delta_v_dim == 192);
    assert_true(c.delta_beta_scale == 2 && c.num_kv_heads == 30 && c.head_dim == 128);
    assert_int_equal(model_config_num_attention_layers(&c, 32), 8);
    assert_true(!model_config_layer(&c, 3).rope && !bit_set_has(c.stateful_layers, 3));
    c = read_good(OLMO_HYBRID(",'linear_allow_neg_eigval':false,'rope_theta':5e5"));
    assert_true(c.delta_beta_scale == 1 && model_config_layer(&c, 3).rope && c.rope.theta == 5e5);
    expect_refusal(OLMO_HYBRID(",'linear_conv_kernel_dim':3"), STATUS_UNSUPPORTED, "linear_conv_kernel_dim");
}

#define KIMI_LINEAR(extra)                                                                                   \
    "{'architectures':['KimiLinearForCausalLM'],'model_type':'kimi_linear','first_k_dense_replace':1,"       \
    "'head_dim':72,'hidden_act':'silu','hidden_size':2304,'intermediate_size':9216,'kv_lora_rank':512,"      \
    "'model_max_length':1048576,'moe_intermediate_size':1024,'moe_layer_freq':1,'moe_renormalize':true,"     \
    "'num_attention_heads':32,'num_expert_group':1,'num_experts':256,'num_experts_per_token':8,"             \
    "'num_hidden_layers':27,'num_key_value_heads':32,'num_nextn_predict_layers':0,'num_shared_experts':1,"   \
    "'q_lora_rank':null,'qk_nope_head_dim':128,'qk_rope_head_dim':64,'rms_norm_eps':1e-05,"                  \
    "'rope_scaling':null,'rope_theta':10000.0,'routed_scaling_factor':2.446,'tie_word_embeddings':false,"    \
    "'topk_group':1,'use_grouped_topk':true,'v_head_dim':128,'vocab_size':163840" extra "}"
#define KIMI_DELTA(taps)                                                                                     \
    ",'linear_attn_config':{'full_attn_layers':[4,8,12,16,20,24,27],'head_dim':128,'num_heads':32,"          \
    "'kda_layers':[1,2,3,5,6,7,9,10,11,13,14,15,17,18,19,21,22,23,25,26],'short_conv_kernel_size':" taps "}"

/* As Kimi-Linear-48B-A3B-Instruct has them. */
static void reads_kimi_linear(void **state)
{
    (void)state;
    struct model_config c =
        read_good(KIMI_LINEAR(KIMI_DELTA("4") ",'mla_use_nope':true,'moe_router_activation_func':'sigmoid'"));
    assert_true(c.delta_k_heads == 32 && c.delta_v_heads == 32 && c.delta_k_dim == 128 &&
                c.delta_v_dim == 128);
    assert_int_equal(model_config_num_attention_layers(&c, 27), 7);
    assert_true(bit_set_has(c.stateful_layers, 2) && !bit_set_has(c.stateful_layers, 3) &&
                !bit_set_has(c.stateful_layers, 26) && !model_config_layer(&c, 3).rope);
    assert_true(c.latent.rank == 512 && c.latent.q_rank == 0 && c.head_dim == 576 && c.num_kv_heads == 1);
    assert_true(c.num_experts == 256 && c.num_chosen_experts == 8 && c.shared_intermediate_size == 1024 &&
                c.router_scale == 2.446f && c.router_normalizes && c.has_router_bias);
    assert_true(!bit_set_has(c.sparse_layers, 0) && bit_set_has(c.sparse_layers, 1));
    assert_int_equal(c.max_position_embeddings, 1048576);
    assert_int_equal(model_config_num_parameters(&c) / 1000000, 49122);
    /* as newer programs write them */
    c = read_good(KIMI_LINEAR(",'linear_head_dim':64,'linear_num_heads':16"));
    assert_true(c.delta_v_heads == 16 && c.delta_v_dim == 64 && bit_set_has(c.stateful_layers, 0));
    assert_true(!bit_set_has(c.stateful_layers, 4) && model_config_num_attention_layers(&c, 27) == 6);
    expect_refusal(KIMI_LINEAR(KIMI_DELTA("3")), STATUS_UNSUPPORTED, "short_conv_kernel_size");
    expect_refusal(KIMI_LINEAR(",'mla_use_nope':false"), STATUS_UNSUPPORTED, "mla_use_nope");
    expect_refusal(KIMI_LINEAR(",'moe_router_activation_func':'softmax'"), STATUS_UNSUPPORTED, "\"softmax\"");
}

#define GRANITE_SWA(extra)                                                                                   \
    "{'architectures':['GraniteSWAForCausalLM'],'hidden_size':64,'intermediate_size':64,'vocab_size':32,"    \
    "'num_attention_heads':4,'num_hidden_layers':5,'sliding_window':128,'rope_theta':1e4" extra "}"

/* A list of thetas says which layers rotate, and by what. */
static void reads_granite_swa(void **state)
{
    (void)state;
    struct model_config c = read_good(GRANITE_SWA(",'layer_rope_theta':[0,5e5,5e5,5e5,0]"));
    assert_true(!model_config_layer(&c, 0).rope && model_config_layer(&c, 1).rope && c.rope.theta == 5e5);
    assert_true(model_config_layer(&c, 0).sliding_window == 0 &&
                model_config_layer(&c, 3).sliding_window == 128 &&
                model_config_layer(&c, 4).sliding_window == 0);
    c = read_good(GRANITE_SWA(""));
    assert_true(model_config_layer(&c, 4).rope && c.rope.theta == 1e4);
    expect_refusal(GRANITE_SWA(",'layer_rope_theta':[0,5e5,1e5]"), STATUS_UNSUPPORTED,
                   "the same in layers that rotate");
    expect_refusal(GRANITE_SWA(",'layer_rope_theta':[0,'a']"), STATUS_UNSUPPORTED, "layer_rope_theta");
    expect_refusal(GRANITE_SWA(",'layer_rope_theta':[0,0,0,0,0,0]"), STATUS_UNSUPPORTED, "layer_rope_theta");
}

#define MUSE(extra)                                                                                          \
    "{'architectures':['MuseGlimmerForConditionalGeneration'],'text_config':{'hidden_size':64,"              \
    "'intermediate_size':64,'num_attention_heads':2,'num_hidden_layers':2,'vocab_size':32,"                  \
    "'sliding_window':16,'layer_types':['sliding_attention','full_attention'],'rope_theta':20000" extra "}}"
#define GEMMA_4_WITHOUT(extra)                                                                               \
    "{'architectures':['Gemma4ForConditionalGeneration'],'text_config':{'hidden_size':64,"                   \
    "'intermediate_size':64,'num_attention_heads':2,'num_key_value_heads':1,'head_dim':32,"                  \
    "'num_hidden_layers':2,'vocab_size':32" extra "}}"
#define GEMMA_4(extra)                                                                                       \
    GEMMA_4_WITHOUT(",'sliding_window':16,'rope_parameters':{},'layer_types':['sliding_attention','full_"    \
                    "attention']" extra)
#define GEMMA_3N(extra)                                                                                      \
    "{'architectures':['Gemma3nForConditionalGeneration'],'text_config':{'hidden_size':64,"                  \
    "'num_attention_heads':2,'num_key_value_heads':1,'head_dim':32,'num_hidden_layers':2,'vocab_size':32,"   \
    "'sliding_window':16,'layer_types':['sliding_attention','full_attention'],"                              \
    "'num_kv_shared_layers':0,'vocab_size_per_layer_input':30" extra "}}"
#define MIMO(extra)                                                                                          \
    "{'architectures':['MiMoV2FlashForCausalLM'],'hidden_size':64,'intermediate_size':64,"                   \
    "'num_attention_heads':8,'num_key_value_heads':2,'num_hidden_layers':3,'vocab_size':32,"                 \
    "'n_routed_experts':4,'num_experts_per_tok':2" extra "}"
#define HYPERCLOVAX(extra)                                                                                   \
    "{'architectures':['HyperCLOVAXForCausalLM'],'hidden_size':64,'intermediate_size':64,"                   \
    "'num_attention_heads':2,'num_hidden_layers':2,'vocab_size':32" extra "}"
#define SOLAR(extra)                                                                                         \
    "{'architectures':['SolarOpenForCausalLM'],'hidden_size':64,'num_attention_heads':2,"                    \
    "'num_key_value_heads':1,'num_hidden_layers':2,'vocab_size':32,'n_routed_experts':4,"                    \
    "'num_experts_per_tok':2" extra "}"

#define HYBRID(extra)                                                                                        \
    "{'architectures':['Qwen3_5ForCausalLM'],'hidden_size':64,'intermediate_size':64,"                       \
    "'num_attention_heads':2,'num_key_value_heads':1,'num_hidden_layers':2,'vocab_size':32" extra "}"

/* As published files have it, and as transformers writes it. */
static void reads_mimo(void **state)
{
    (void)state;
    const char *const configs[] = {
        MIMO(",'head_dim':24,'v_head_dim':16,'swa_head_dim':24,'swa_v_head_dim':16,'swa_num_key_value_heads':"
             "4,"
             "'sliding_window_size':128,'hybrid_layer_pattern':[0,1,1],'moe_layer_freq':[0,1,1],"
             "'rope_theta':5000000,'swa_rope_theta':10000,'partial_rotary_factor':0.334,"
             "'attention_value_scale':0.707,'routed_scaling_factor':null"),
        MIMO(",'head_dim':24,'v_head_dim':16,'sliding_window':129,'layer_types':['full_attention',"
             "'sliding_attention','sliding_attention'],'mlp_layer_types':['dense','sparse','sparse'],"
             "'rope_parameters':{'full_attention':{'rope_type':'default','rope_theta':5000000.0,"
             "'partial_rotary_factor':0.334},'sliding_attention':{'rope_type':'default','rope_theta':10000.0,"
             "'partial_rotary_factor':0.334}}"),
    };
    for (size_t i = 0; i < array_length(configs); i++) {
        const struct model_config c = read_good(configs[i]);
        const struct layer_config full = model_config_layer(&c, 0), windowed = model_config_layer(&c, 1);
        assert_true(full.sliding_window == 0 && full.num_kv_heads == 2 && full.head_dim == 24);
        assert_true(windowed.sliding_window == 129 && windowed.num_kv_heads == 4 && windowed.v_dim == 16);
        assert_true(full.rope->theta == 5e6 && full.rope->rotary_dim == 8);
        assert_true(windowed.rope->theta == 10000 && windowed.rope->rotary_dim == 8);
        assert_true(c.v_scale == 0.707f && c.router_scale == 1 && c.has_router_bias);
        assert_true(!bit_set_has(c.sparse_layers, 0) && bit_set_has(c.sparse_layers, 1));
        assert_int_equal(model_config_mixed_width(&c, 1), 8 * 16);
    }
}

#define COHERE_MOE(norm, extra)                                                                              \
    "{'architectures':['Cohere2MoeForCausalLM'],'hidden_size':64,'intermediate_size':24,"                    \
    "'prefix_dense_intermediate_size':96,'num_attention_heads':4,'num_key_value_heads':2,'head_dim':16,"     \
    "'num_hidden_layers':3,'vocab_size':32,'num_experts':4,'num_experts_per_tok':2,"                         \
    "'first_k_dense_replace':1" norm extra "}"
#define COHERE_NORM ",'rms_norm_eps':1e-06"
#define COHERE_LAYERS ",'layer_types':['full_attention','sliding_attention','full_attention']"

static void reads_cohere_moe(void **state)
{
    (void)state;
    struct model_config c = read_good(
        COHERE_MOE(COHERE_NORM, COHERE_LAYERS
                   ",'expert_selection_fn':'sigmoid','norm_topk_prob':false,'num_shared_experts':0"));
    assert_true(c.router_scores == ROUTER_SIGMOID && !c.router_normalizes && !c.has_router_bias);
    assert_true(c.intermediate_size == 96 && c.expert_intermediate_size == 24 &&
                c.shared_intermediate_size == 0);
    assert_true(!bit_set_has(c.sparse_layers, 0) && bit_set_has(c.sparse_layers, 1));
    assert_true(model_config_layer(&c, 0).rope && model_config_layer(&c, 1).rope &&
                !model_config_layer(&c, 2).rope);
    c = read_good(COHERE_MOE(COHERE_NORM, COHERE_LAYERS ",'prefix_dense_sliding_window_pattern':4"));
    assert_true(c.router_scores == ROUTER_SOFTMAX && c.router_normalizes && !model_config_layer(&c, 0).rope);
}

#define LFM_3(extra)                                                                                         \
    "{'architectures':['Lfm3ForCausalLM'],'hidden_size':64,'intermediate_size':100,"                         \
    "'num_attention_heads':4,'num_key_value_heads':2,'head_dim':16,'num_hidden_layers':3,'vocab_size':32,"   \
    "'layer_types':['conv','full_attention','sliding_attention'],'rope_parameters':{'full_attention':{"      \
    "'rope_type':'proportional','rope_theta':1000000.0,'partial_rotary_factor':0.5},'sliding_attention':{"   \
    "'rope_theta':10000.0}}" extra "}"

static void reads_lfm3(void **state)
{
    (void)state;
    const struct model_config c = read_good(LFM_3(",'sliding_window':32"));
    assert_true(c.short_taps == 7 && c.gates_by_head && c.intermediate_size == 100);
    assert_true(bit_set_has(c.stateful_layers, 0) && !bit_set_has(c.stateful_layers, 2));
    assert_true(model_config_layer(&c, 1).sliding_window == 0 &&
                model_config_layer(&c, 2).sliding_window == 32);
    assert_true(model_config_layer(&c, 1).rope->num_turning == 4);
    assert_true(model_config_layer(&c, 2).rope->theta == 10000);
    assert_int_equal(model_config_state_bytes(&c), 6 * 64 * sizeof(float));
    assert_int_equal(model_config_draft_bytes(&c, 7), 8 * 64 * sizeof(float));
    assert_int_equal(model_config_draft_bytes(&c, 0), 0);
}

static void reads_minicpm(void **state)
{
    (void)state;
    const char *const classes[] = {"MiniCPMForCausalLM", "MiniCPM3ForCausalLM"};
    for (size_t i = 0; i < array_length(classes); i++) {
        char config[1024];
        snprintf(config, sizeof config,
                 "{'architectures':['%s'],'hidden_size':512,'intermediate_size':64,'num_attention_heads':8,"
                 "'num_hidden_layers':49,'vocab_size':32,'kv_lora_rank':64,'q_lora_rank':48,'scale_emb':12,"
                 "'dim_model_base':256,'scale_depth':1.4,'rms_norm_eps':1e-05}",
                 classes[i]);
        const struct model_config c = read_good(config);
        assert_true(c.embedding_scale == 12 && c.residual_scale == 0.2f && c.logit_scale == 0.5f);
        assert_true(c.tie_word_embeddings == (i == 1) && c.rope.style == ROPE_HALVES);
        assert_true(i == 0 ? c.num_kv_heads == 8 && c.attention_scale == 0.125f
                           : c.latent.rank == 64 && c.latent.value_dim == 64);
    }
}

#define LAGUNA(extra)                                                                                        \
    "{'architectures':['LagunaForCausalLM'],'hidden_size':64,'intermediate_size':64,"                        \
    "'num_attention_heads':4,'num_key_value_heads':2,'head_dim':16,'num_hidden_layers':3,'vocab_size':32,"   \
    "'num_experts':4,'num_experts_per_tok':2,'rope_parameters':{'full_attention':{'rope_theta':500000.0,"    \
    "'partial_rotary_factor':0.5},'sliding_attention':{'rope_theta':10000.0}}" extra "}"

static void reads_laguna(void **state)
{
    (void)state;
    struct model_config c = read_good(LAGUNA(
        ",'layer_types':['full_attention','sliding_attention','sliding_attention'],'sliding_window':32,"
        "'num_attention_heads_per_layer':[4,6,6],'gating':'per-head','moe_routed_scaling_factor':2.5,"
        "'mlp_layer_types':['dense','sparse','sparse']"));
    const struct layer_config full = model_config_layer(&c, 0), windowed = model_config_layer(&c, 1);
    assert_true(full.num_heads == 4 && windowed.num_heads == 6 && windowed.num_kv_heads == 2);
    assert_true(full.sliding_window == 0 && windowed.sliding_window == 32);
    assert_true(full.rope->theta == 500000 && full.rope->rotary_dim == 8);
    assert_true(windowed.rope->theta == 10000 && windowed.rope->rotary_dim == 16);
    assert_true(c.gates_by_head && c.router_scale == 2.5f && c.has_router_bias && c.router_normalizes);
    assert_true(!bit_set_has(c.sparse_layers, 0) && bit_set_has(c.sparse_layers, 1));
    assert_int_equal(model_config_mixed_width(&c, 1), 6 * 16);
    assert_int_equal(weight_dimension(&c, DIM_GATES, 1), 6);
    c = read_good(LAGUNA(",'gating':'per-element'"));
    assert_true(!c.gates_by_head && weight_dimension(&c, DIM_GATES, 1) == 4 * 16);
    assert_true(model_config_layer(&c, 1).sliding_window == 0 && model_config_layer(&c, 1).num_heads == 4);
}

#define GPT_2(extra)                                                                                         \
    "{'architectures':['GPT2LMHeadModel'],'model_type':'gpt2','bos_token_id':50256,'eos_token_id':50256,"    \
    "'layer_norm_epsilon':2e-05,'n_ctx':1024,'n_embd':768,'n_head':12,'n_layer':12,'n_positions':1024,"      \
    "'task_specific_params':{'text-generation':{'do_sample':true}},'vocab_size':50257" extra "}"

static void reads_gpt_2(void **state)
{
    (void)state;
    struct model_config c = read_good(GPT_2(",'activation_function':'gelu_new','n_inner':null"));
    assert_true(c.num_layers == 12 && c.num_heads == 12 && c.num_kv_heads == 12 && c.head_dim == 64 &&
                c.intermediate_size == 3072 && c.tie_word_embeddings && c.rms_norm_eps == 2e-5f);
    assert_true(c.num_position_rows == 1024 && c.num_type_rows == 0 && c.max_position_embeddings == 1024);
    assert_true(c.qkv_bias && c.o_bias && c.gate == GATE_GELU_TANH && !c.is_parallel &&
                !model_config_layer(&c, 0).rope && !model_config_layer(&c, 11).rope);
    assert_int_equal(model_config_num_parameters(&c), 124439808);
    assert_int_equal(read_good(GPT_2(",'activation_function':'gelu'")).gate, GATE_GELU); /* Cerebras-GPT */
    assert_int_equal(read_good(GPT_2(",'n_inner':1024")).intermediate_size, 1024);
}

#define STARCODER(extra)                                                                                     \
    "{'architectures':['GPTBigCodeForCausalLM'],'model_type':'gpt_bigcode','activation_function':"           \
    "'gelu_pytorch_tanh','layer_norm_epsilon':1e-05,'n_embd':2048,'n_head':16,'n_inner':8192,'n_layer':24,"  \
    "'n_positions':8192,'vocab_size':49152" extra "}"

static void reads_starcoder(void **state)
{
    (void)state;
    struct model_config c = read_good(STARCODER(",'multi_query':true"));
    assert_true(c.num_kv_heads == 1 && c.head_dim == 128 && !c.qkv_by_heads && c.num_position_rows == 8192);
    c = read_good(STARCODER(",'multi_query':false"));
    assert_true(c.num_kv_heads == 16 && c.qkv_by_heads);
}

#define GPT_NEO(extra)                                                                                       \
    "{'architectures':['GPTNeoForCausalLM'],'activation_function':'gelu_new','hidden_size':768,"             \
    "'intermediate_size':null,'layer_norm_epsilon':1e-05,'max_position_embeddings':2048,"                    \
    "'model_type':'gpt_neo','num_heads':16,'num_layers':4,'vocab_size':50257" extra "}"

static void reads_gpt_neo(void **state)
{
    (void)state;
    struct model_config c =
        read_good(GPT_NEO(",'attention_layers':['global','local','global','local'],'window_size':256"));
    assert_true(c.num_layers == 4 && c.num_heads == 16 && c.intermediate_size == 3072 &&
                c.attention_scale == 1 && !c.qkv_bias && !c.o_bias);
    assert_true(model_config_layer(&c, 0).sliding_window == 0 &&
                model_config_layer(&c, 3).sliding_window == 256);
}

#define PYTHIA(extra)                                                                                        \
    "{'architectures':['GPTNeoXForCausalLM'],'bos_token_id':0,'eos_token_id':0,'hidden_size':768,"           \
    "'initializer_range':0.02,'intermediate_size':3072,'layer_norm_eps':1e-05,"                              \
    "'max_position_embeddings':2048,'model_type':'gpt_neox','num_attention_heads':12,"                       \
    "'num_hidden_layers':12,'rotary_emb_base':20000,'rotary_pct':0.25,'tie_word_embeddings':false,"          \
    "'vocab_size':50304" extra "}"

static void reads_gpt_neox(void **state)
{
    (void)state;
    struct model_config c = read_good(PYTHIA(",'hidden_act':'gelu','use_parallel_residual':true"));
    assert_true(c.num_kv_heads == 12 && c.rope.rotary_dim == 16 && c.rope.theta == 20000 && c.qkv_by_heads);
    assert_true(c.is_parallel && c.gate == GATE_GELU && c.qkv_bias && c.o_bias && !c.tie_word_embeddings);
    assert_int_equal(model_config_num_parameters(&c), 162322944);
    assert_int_equal(read_good(PYTHIA(",'hidden_act':'gelu_fast'")).gate, GATE_GELU_TANH);
    assert_true(read_good(PYTHIA("")).is_parallel);
    assert_false(read_good(PYTHIA(",'use_parallel_residual':false")).is_parallel);
    c = read_good(PYTHIA(",'attention_bias':false,'rope_parameters':{'partial_rotary_factor':0.5}"));
    assert_true(!c.qkv_bias && !c.o_bias && c.rope.rotary_dim == 32);
}

static void reads_exaone_3(void **state)
{
    (void)state;
    struct model_config c = read_good(
        "{'activation_function':'silu','architectures':['ExaoneForCausalLM'],'bos_token_id':1,"
        "'eos_token_id':361,'head_dim':80,'hidden_size':2560,'intermediate_size':7168,"
        "'layer_norm_epsilon':2e-05,'max_position_embeddings':32768,'model_type':'exaone',"
        "'num_attention_heads':32,'num_key_value_heads':8,'num_layers':30,'rope_scaling':{'factor':8.0,"
        "'high_freq_factor':4.0,'low_freq_factor':1.0,'original_max_position_embeddings':8192,"
        "'rope_type':'llama3'},'rope_theta':1000000.0,'tie_word_embeddings':true,'vocab_size':102400}");
    assert_true(c.num_layers == 30 && c.rms_norm_eps == 2e-5f && c.rope.type == ROPE_LLAMA3);
    assert_int_equal(model_config_num_parameters(&c), 2405327360);
}

/* A Llama under the names of its own type, as transformers 5 saves it; with a class of its own it is what that is. */
#define SAVED_EXAONE(more)                                                                                   \
    "{'architectures':['LlamaForCausalLM'],'model_type':'exaone','hidden_size':64,'intermediate_size':96,"   \
    "'num_attention_heads':4,'num_hidden_layers':2,'num_key_value_heads':2,'vocab_size':96" more "}"

static void a_type_goes_before_the_class_that_saved_it(void **state)
{
    (void)state;
    assert_string_equal(family_name(read_good(SAVED_EXAONE("")).family), "exaone");
    assert_string_equal(
        family_name(
            read_good(SAVED_EXAONE(",'auto_map':{'AutoModelForCausalLM':'modeling_own.Own'}")).family),
        "llama");
}

/* Some of its programs say nothing of the shared expert, which each layer has. */
static void reads_hunyuan_moe(void **state)
{
    (void)state;
    struct model_config c = read_good(
        "{'architectures':['HunYuanMoEV1ForCausalLM'],'model_type':'hunyuan_v1_moe','hidden_size':64,"
        "'intermediate_size':96,'moe_topk':2,'num_attention_heads':4,'num_experts':6,'num_hidden_layers':2,"
        "'num_key_value_heads':2,'vocab_size':96}");
    assert_true(c.shared_intermediate_size == 96 && c.num_chosen_experts == 2);
}

/* What qkv_bias says counts where there are biases. */
#define QWEN_2_MOE(more)                                                                                     \
    "{'architectures':['Qwen2MoeForCausalLM'],'model_type':'qwen2_moe','hidden_size':64,'intermediate_size'" \
    ":"                                                                                                      \
    "96,'moe_intermediate_size':48,'shared_expert_intermediate_size':48,'num_attention_heads':4,'num_"       \
    "experts'"                                                                                               \
    ":6,'num_experts_per_tok':2,'num_hidden_layers':2,'num_key_value_heads':2,'vocab_size':96" more "}"

static void reads_qwen_2_moe(void **state)
{
    (void)state;
    assert_true(read_good(QWEN_2_MOE("")).qkv_bias);
    assert_true(read_good(QWEN_2_MOE(",'qkv_bias':true")).qkv_bias);
    assert_false(read_good(QWEN_2_MOE(",'qkv_bias':false")).qkv_bias);
}

static void reads_internlm2(void **state)
{
    (void)state;
    struct model_config c = read_good(
        "{'architectures':['InternLM2ForCausalLM'],'attn_implementation':'eager','bias':false,"
        "'bos_token_id':1,'eos_token_id':2,'hidden_act':'silu','hidden_size':4096,'intermediate_size':14336,"
        "'max_position_embeddings':32768,'model_type':'internlm2','num_attention_heads':32,"
        "'num_hidden_layers':32,'num_key_value_heads':8,'rms_norm_eps':1e-05,'rope_scaling':{'type':"
        "'dynamic','factor':2.0},'rope_theta':1000000,'tie_word_embeddings':false,'vocab_size':92544}");
    assert_true(c.qkv_by_heads && !c.qkv_bias && c.rope.rotary_dim == 128 && c.rope.style == ROPE_HALVES);
    assert_int_equal(model_config_num_parameters(&c), 7737708544);
}

/* Falcon 7B's. */
#define FALCON(more)                                                                                         \
    "{'architectures':['FalconForCausalLM'],'model_type':'falcon','bos_token_id':11,'eos_token_id':11,"      \
    "'hidden_size':4544,'layer_norm_epsilon':1e-05,'multi_query':true,'num_attention_heads':71,"             \
    "'num_hidden_layers':32,'vocab_size':65024" more "}"

static void reads_falcon(void **state)
{
    (void)state;
    struct model_config c = read_good(FALCON(",'alibi':false,'bias':false,'parallel_attn':true"));
    assert_true(c.num_kv_heads == 1 && !c.qkv_by_heads && c.head_dim == 64 && c.intermediate_size == 18176);
    assert_true(c.tie_word_embeddings && c.is_parallel && c.gate == GATE_GELU && c.rms_norm_eps == 1e-5f);
    assert_int_equal(model_config_num_parameters(&c), 6921720704);
    c = read_good(FALCON(
        ",'new_decoder_architecture':true,'num_ln_in_parallel_attn':1,'num_kv_heads':71,'ffn_hidden_size'"
        ":9088"));
    assert_true(c.num_kv_heads == 71 && c.qkv_by_heads && c.intermediate_size == 9088);
    assert_false(weight_may_be(c.family->weight_changes, WEIGHT_MLP_NORM));
    c = read_good(FALCON(",'new_decoder_architecture':true,'num_kv_heads':1"));
    assert_true(weight_may_be(c.family->weight_changes, WEIGHT_MLP_NORM) && c.is_parallel);
}

/* Of gate and up together; what is done with longer texts is not computed. */
static void reads_qwen_1(void **state)
{
    (void)state;
    const char *format =
        "{'architectures':['QWenLMHeadModel'],'model_type':'qwen','hidden_size':4096,'intermediate_size':%d,"
        "'kv_channels':128,'layer_norm_epsilon':1e-06,'max_position_embeddings':32768,'no_bias':true,"
        "'num_attention_heads':32,'num_hidden_layers':32,'rotary_emb_base':10000,'rotary_pct':1.0,"
        "'scale_attn_weights':true,'seq_length':8192,'tie_word_embeddings':false,'use_dynamic_ntk':true,"
        "'use_logn_attn':true,'vocab_size':151936}";
    char config[1024];
    snprintf(config, sizeof config, format, 22016);
    struct model_config c = read_good(config);
    assert_true(c.intermediate_size == 11008 && c.max_position_embeddings == 8192 && c.qkv_bias && !c.o_bias);
    assert_int_equal(model_config_num_parameters(&c), 7721324544);
    snprintf(config, sizeof config, format, 22017);
    expect_refusal(config, STATUS_INVALID, "gate and up have 22017 rows together");
}

/* Ling Lite's, in two layers. */
#define LING_1(more)                                                                                         \
    "{'architectures':['BailingMoeForCausalLM'],'model_type':'bailing_moe','first_k_dense_replace':0,"       \
    "'hidden_size':2048,'intermediate_size':5632,'max_position_embeddings':16384,'moe_intermediate_size':"   \
    "1408,'norm_topk_prob':true,'num_attention_heads':16,'num_experts':64,'num_experts_per_tok':6,"          \
    "'num_hidden_layers':2,'num_key_value_heads':4,'num_shared_experts':2,'rms_norm_eps':1e-06,"             \
    "'rope_theta':600000,'use_bias':false,'use_qkv_bias':false,'vocab_size':126464" more "}"

static void reads_ling_1(void **state)
{
    (void)state;
    struct model_config c = read_good(LING_1(",'norm_head':false"));
    assert_true(c.router_scores == ROUTER_SOFTMAX && c.router_normalizes && !c.has_router_bias && !c.qk_norm);
    assert_true(c.shared_intermediate_size == 2816 && bit_set_has(c.sparse_layers, 0) && c.num_experts == 64);
}

#define BAICHUAN(hidden, vocab)                                                                              \
    "{'architectures':['BaichuanForCausalLM'],'model_type':'baichuan','hidden_size':" hidden                 \
    ",'intermediate_size':11008,'model_max_length':4096,'num_attention_heads':32,'num_hidden_layers':32,"    \
    "'vocab_size':" vocab "}"

/* Positions begin at the third row of their table. */
static void opt_is_read(void **state)
{
    (void)state;
#define OPT(extra)                                                                                           \
    "{'architectures':['OPTForCausalLM'],'hidden_size':64,'ffn_dim':256,'num_attention_heads':4,"            \
    "'num_hidden_layers':2,'max_position_embeddings':100,'vocab_size':96" extra "}"
    struct model_config c = read_good(OPT(",'word_embed_proj_dim':64,'activation_function':'relu'"));
    assert_true(c.intermediate_size == 256 && c.gate == GATE_RELU && c.qkv_bias && c.o_bias &&
                !c.is_parallel);
    assert_true(c.first_position_row == 2 && c.num_position_rows == 102 && c.max_position_embeddings == 100);
    assert_true(c.tie_word_embeddings && !model_config_layer(&c, 1).rope);
    expect_refusal(OPT(",'word_embed_proj_dim':32"), STATUS_UNSUPPORTED,
                   "word_embed_proj_dim is not supported");
    expect_refusal(OPT(",'do_layer_norm_before':false"), STATUS_UNSUPPORTED, "do_layer_norm_before is false");
    expect_refusal(OPT(",'_remove_final_layer_norm':true"), STATUS_UNSUPPORTED,
                   "_remove_final_layer_norm is set");
    expect_refusal(OPT(",'activation_function':'gelu'"), STATUS_UNSUPPORTED, "\"relu\" is");
}

#define MPT(attention, more)                                                                                 \
    "{'architectures':['MPTForCausalLM'],'d_model':96,'n_heads':6,'n_layers':2,'max_seq_len':1000,"          \
    "'expansion_ratio':3,'vocab_size':96,'attn_config':{" attention "}" more "}"

/* Scores that fall with the distance, where nothing rotates. */
static void alibi_is_read(void **state)
{
    (void)state;
    struct model_config c =
        read_good(MPT("'alibi':true,'alibi_bias_max':16,'clip_qkv':6", ",'no_bias':true"));
    assert_true(c.alibi_most == 16 && c.alibi_scale == 1 && c.qkv_clip == 6 &&
                !model_config_layer(&c, 1).rope);
    assert_true(c.hidden_size == 96 && c.num_heads == 6 && c.intermediate_size == 288 && c.num_layers == 2 &&
                c.max_position_embeddings == 1000);
    expect_refusal(MPT("'alibi_bias_max':0", ""), STATUS_INVALID, "alibi_bias_max");
    expect_refusal(MPT("'clip_qkv':'x'", ""), STATUS_INVALID, "clip_qkv");
    c = read_good(MPT("'clip_qkv':null,'softmax_scale':null", ",'logit_scale':null"));
    assert_true(c.alibi_most == 8 && c.qkv_clip == 0);
    c = read_good(FALCON(",'alibi':true,'bias':true,'parallel_attn':false"));
    assert_true(c.alibi_most == 8 && c.alibi_scale == c.attention_scale && !c.is_parallel && c.qkv_bias &&
                !model_config_layer(&c, 0).rope);
    c = read_good(BAICHUAN("5120", "125696"));
    assert_true(c.alibi_most == 8 && c.has_unit_head && !model_config_layer(&c, 0).rope);
    c = read_good(BAICHUAN("4096", "125696"));
    assert_true(c.alibi_most == 0 && model_config_layer(&c, 0).rope);
    c = read_good("{'architectures':['BloomForCausalLM'],'n_embed':64,'num_attention_heads':4,'n_layer':2,'"
                  "vocab_size':96}");
    assert_true(c.alibi_most == 8 && c.hidden_size == 64 && c.intermediate_size == 256 &&
                c.tie_word_embeddings);
}

/* Where layers differ in their K/V heads alone. */
static void listed_kv_heads_are_read(void **state)
{
    (void)state;
#define LISTED(list)                                                                                         \
    "{'architectures':['DeciLMForCausalLM'],'model_type':'deci','hidden_size':64,'intermediate_size':96,"    \
    "'num_attention_heads':4,'num_hidden_layers':3,'vocab_size':96,'num_key_value_heads_per_layer':" list    \
    "}"
    struct model_config c = read_good(LISTED("[4,1,2]"));
    assert_true(c.num_layers == 3 && c.num_kv_heads == 4 && c.intermediate_size == 96);
    assert_true(model_config_layer(&c, 1).num_kv_heads == 1 && model_config_layer(&c, 2).num_kv_heads == 2);
    expect_refusal(LISTED("[4,1]"), STATUS_INVALID,
                   "num_key_value_heads_per_layer has 2 entries for 3 layers");
    expect_refusal(LISTED("[4,1,3]"), STATUS_INVALID, "is no list of parts of 4 attention heads");
    expect_refusal(LISTED("[4,0,2]"), STATUS_INVALID, "is no list of parts of 4 attention heads");
    expect_refusal(LISTED("4"), STATUS_INVALID, "block_configs has 0 entries for 3 layers");
}

/* By the size of its vocabulary, or by what its class says beside. */
static void a_head_of_unit_rows_is_known(void **state)
{
    (void)state;
    assert_false(read_good(BAICHUAN("4096", "64000")).has_unit_head);
    assert_true(read_good(BAICHUAN("4096", "125696")).has_unit_head);
    assert_true(read_good(BAICHUAN("4096", "64000,'z_loss_weight':0")).has_unit_head);
}

/* Flint's layers rotate or do not by a list, which must be there. */
static void flint_must_list_its_layers(void **state)
{
    (void)state;
    expect_refusal(
        "{'architectures':['FlintForCausalLM'],'model_type':'flint','hidden_size':64,"
        "'intermediate_size':96,'moe_intermediate_size':48,'num_attention_heads':4,'num_experts':6,"
        "'num_experts_per_tok':2,'num_hidden_layers':2,'vocab_size':96}",
        STATUS_INVALID, "layer_types is missing");
}

/* Nemotron Super 49B's shape, in four layers. attention: of the second one. */
#define DECILM(attention)                                                                                    \
    "{'architectures':['DeciLMForCausalLM'],'hidden_act':'silu','hidden_size':8192,'intermediate_size':"     \
    "null,'max_position_embeddings':131072,'model_type':'nemotron-nas','num_attention_heads':64,"            \
    "'num_hidden_layers':4,'num_key_value_heads':null,'rms_norm_eps':1e-05,'rope_scaling':{'factor':8.0,"    \
    "'high_freq_factor':4.0,'low_freq_factor':1.0,'original_max_position_embeddings':8192,'rope_type':"      \
    "'llama3'},'rope_theta':500000.0,'vocab_size':128256,'block_configs':["                                  \
    "{'attention':{'n_heads_in_group':8,'no_op':false,'replace_with_linear':false,'window_length':null},"    \
    "'ffn':{'ffn_mult':2.625,'no_op':false,'replace_with_linear':false}},"                                   \
    "{'attention':{" attention "},'ffn':{'ffn_mult':5.25,'no_op':false,'replace_with_linear':false}},"       \
    "{'attention':{'n_heads_in_group':null,'no_op':true},'ffn':{'ffn_mult':null,'no_op':true}},"             \
    "{'attention':{'n_heads_in_group':null,'replace_with_linear':true},'ffn':{'ffn_mult':1.3125}}]}"

static void reads_decilm(void **state)
{
    (void)state;
    static const int32_t kv_heads[] = {8, 2, 0, 0}, widths[] = {14336, 28672, 0, 7168};
    struct model_config c = read_good(DECILM("'n_heads_in_group':32"));
    assert_true(c.num_layers == 4 && c.num_kv_heads == 8 && c.intermediate_size == 28672 &&
                c.head_dim == 128);
    for (int32_t i = 0; i < c.num_layers; i++) {
        const struct layer_config layer = model_config_layer(&c, i);
        assert_int_equal(model_config_has_attention(&c, i), kv_heads[i] > 0);
        assert_int_equal(bit_set_has(c.layers_without_mlp, (size_t)i), widths[i] == 0);
        if (kv_heads[i] > 0) assert_int_equal(layer.num_kv_heads, kv_heads[i]);
        if (widths[i] > 0) assert_int_equal(layer.intermediate_size, widths[i]);
    }
    assert_false(model_config_is_mixed(&c, 2));
    assert_true(model_config_is_mixed(&c, 3) && bit_set_has(c.replaced_layers, 3));
    assert_int_equal(model_config_kv_bytes_per_token(&c, DTYPE_BF16), 2 * 2 * 128 * (8 + 2));
    expect_refusal(DECILM("'n_heads_in_group':7"), STATUS_INVALID, "n_heads_in_group is 7 in block_configs");
    expect_refusal(DECILM("'no_op':false"), STATUS_INVALID, "n_heads_in_group is missing");
    expect_refusal(DECILM("'n_heads_in_group':8,'window_length':8192"), STATUS_UNSUPPORTED,
                   "window_length is set in block_configs");
    expect_refusal(DECILM("'no_op':true},'ffn':{'replace_with_linear':true}},{'attention':{'no_op':true"),
                   STATUS_INVALID, "block_configs has 5 entries for 4 layers");
    expect_refusal(
        "{'architectures':['DeciLMForCausalLM'],'hidden_size':64,'num_attention_heads':4,"
        "'num_hidden_layers':1,'vocab_size':96,'block_configs':[{'attention':{'n_heads_in_group':2},"
        "'ffn':{'replace_with_linear':true}}]}",
        STATUS_UNSUPPORTED, "replace_with_linear is set");
}

static void refuses_what_it_does_not_compute(void **state)
{
    (void)state;
    static const struct {
        const char *config, *sentence;
    } cases[] = {
        {"{'architectures':['JAISLMHeadModel']}",
         "\"JAISLMHeadModel\" is not supported: it needs ALiBi beside multipliers of its own; llama, "},
        {GPT_2(",'scale_attn_by_inverse_layer_idx':true"), "scale_attn_by_inverse_layer_idx"},
        {GPT_2(",'scale_attn_weights':false"), "scale_attn_weights is false"},
        {GPT_2(",'add_cross_attention':true"), "add_cross_attention"},
        {GPT_NEO(",'attention_layers':['global','local','global','near']"), "attention_layers has \"near\""},
        {GPT_2(",'activation_function':'relu'"), "activation_function \"relu\" is not supported"},
        {HYBRID(",'linear_conv_kernel_dim':3"), "linear_conv_kernel_dim"},
        {HYBRID(",'linear_value_head_dim':40"), "value heads of linear attention have 40 values"},
        {HYBRID(",'attn_output_gate':false"), "attn_output_gate"},
        {HYBRID(",'layer_types':['linear_attention','sliding_attention']"), "\"sliding_attention\""},
        {HYBRID(",'layer_types':['linear_attention','linear_attention']"), "no layer has attention"},
        {"{'architectures':['GptOssForCausalLM'],'swiglu_limit':5}", "swiglu_limit is not supported"},
        {MUSE(",'layer_rope_theta':[20000.0,20000.0]"), "layer_rope_theta is not supported unless it is"},
        {MUSE(",'attn_logit_softcapping':50"), "attn_logit_softcapping"},
        {HYPERCLOVAX(",'use_post_norm':false"), "use_post_norm is false"},
        {SOLAR(",'intermediate_size':64,'moe_intermediate_size':[32,48]"),
         "moe_intermediate_size differs from layer to layer"},
        {SOLAR(",'moe_intermediate_size':32,'mlp_layer_types':['dense','wide']"), "\"wide\""},
        {MIMO(",'add_full_attention_sink_bias':true"), "sinks of layers without a window"},
        {MIMO(",'swa_num_attention_heads':4"), "layers with another number of heads"},
        {GEMMA_4(",'hidden_size_per_layer_input':0,'use_bidirectional_attention':'all'"),
         "use_bidirectional_attention"},
        {GEMMA_4(",'hidden_size_per_layer_input':0,'per_layer_config':{'0':{'head_dim':64}}"),
         "per_layer_config is not supported unless"},
        {GEMMA_4(",'hidden_size_per_layer_input':0,'per_layer_config':{'1':{'head_dim':64},'0':{}}"),
         "per_layer_config is not supported"},
        {"{'architectures':['LlamaForCausalLM'],'hidden_size':64,'clip_qkv':8.0}", "clip_qkv"},
        {"{'architectures':['Kolibri1ForCausalLM']}", "it needs experts that are chosen by other scores"},
        {FALCON(",'bias':true"), "bias is set"},
        {MPT("'alibi':false", ""), "attention without alibi"},
        {MPT("'attn_type':'multiquery_attention'", ""), "attn_type but"},
        {MPT("'qk_ln':true", ""), "qk_ln is set"},
        {MPT("'rope':true", ""), "rope is set"},
        {MPT("'alibi':true", ",'no_bias':false"), "biases are not supported"},
        {"{'architectures':['BloomForCausalLM'],'n_embed':64,'n_head':4,'n_layer':2,'vocab_size':96,"
         "'apply_residual_connection_post_layernorm':true}",
         "apply_residual_connection_post_layernorm is set"},
        {LING_1(",'norm_head':true"), "norm_head is set"},
        {GEMMA_3N(",'intermediate_size':64,'altup_num_inputs':2"), "altup_num_inputs other than 4"},
        {GEMMA_3N(",'intermediate_size':64,'altup_active_idx':1"), "altup_active_idx other than 0"},
        {GEMMA_3N(",'intermediate_size':64,'altup_correct_scale':false"), "altup_correct_scale false"},
        {GEMMA_3N(",'intermediate_size':64,'hidden_size_per_layer_input':0"),
         "layers without embeddings of their own"},
        {GEMMA_3N(",'intermediate_size':64,'activation_sparsity_pattern':[0.95,0.9]"),
         "activation_sparsity_pattern differs between layers that have it"},
        {GEMMA_3N(",'intermediate_size':[64,128]"), "intermediate_size differs from layer to layer"},
        {COHERE_MOE("", COHERE_LAYERS), "LayerNorm beside experts is not supported"},
        {COHERE_MOE(COHERE_NORM, COHERE_LAYERS ",'num_shared_experts':1"),
         "shared_expert_combination_strategy"},
        {COHERE_MOE(COHERE_NORM, COHERE_LAYERS ",'expert_selection_fn':'tanh'"), "expert_selection_fn"},
        {LFM_3(",'conv_L_cache':3"), "conv_L_cache is not supported unless it is 7"},
        {LFM_3(",'use_attention_gate':false"), "use_attention_gate is false"},
        {LAGUNA(",'gating':false"), "gating is not supported unless"},
        {LAGUNA(",'moe_router_logit_softcapping':30.0"), "moe_router_logit_softcapping"},
        {LAGUNA(",'moe_apply_router_weight_on_input':true"), "moe_apply_router_weight_on_input"},
        {LAGUNA(",'num_attention_heads_per_layer':[4,4,6]"), "differs between layers of one kind"},
        {"{'model_type':'jais'}", "\"jais\" is not supported: it needs ALiBi"},
        {"{'model_type':'rwkv'}",
         "\"rwkv\" is not supported: it needs states of RWKV in the place of attention; llama, "},
        {HYBRID(",'is_causal':false"),
         "(is_causal is false) are supported without windows, latents and states"},
        {"{'model_type':'deepseek_v4'}", "it needs attention to tokens that are pressed together"},
        {"{}", "\"\" is not supported; llama"},
        {LLAMA(",'quantization_config':{'quant_method':'quip'}"), "quantization_config"},
        {LLAMA(",'num_local_experts':8"), "num_local_experts"},
        {LLAMA(",'hidden_act':'gelu_pytorch_tanh'"), "gelu_pytorch_tanh"},
        {LLAMA(",'mlp_bias':true"), "mlp_bias"},
        {FALCON_H1(",'mamba_rms_norm':true"), "mamba_norm_before_gate is true"},
        {FALCON_H1(",'attention_bias':true"), "attention_bias"},
        {FALCON_H1(",'time_step_limit':[0.001,1e3]"), "time_step_limit"},
        {STATE_SPACE("'mamba','attention'", NO_EXPERTS ",'time_step_limit':[0.0,0.1]"), "time_step_limit"},
        {STATE_SPACE("'mamba','rwkv'", NO_EXPERTS), "\"rwkv\"; \"attention\" and \"mamba\" are supported"},
        {STATE_SPACE("'mamba','mamba'", NO_EXPERTS), "no layer has attention"},
        {STATE_SPACE("'mamba','attention'", NO_EXPERTS ",'mamba_d_conv':3"), "mamba_d_conv"},
        {JAMBA("'attn_layer_period':9,'attn_layer_offset':5,"), "no layer has attention"},
        {JAMBA("'mamba_d_conv':3,"), "mamba_d_conv"},
        {MAMBA("'conv_kernel':3,"), "conv_kernel"},
        {MAMBA("'use_conv_bias':false,"), "use_conv_bias"},
        {MAMBA("'use_bias':true,"), "use_bias"},
        {MAMBA("'mixer_rms_eps':1e-5,"), "mixer_rms_eps is not supported unless it is 1e-06"},
        {MAMBA("'hidden_act':'gelu',"), "hidden_act"},
        {MAMBA("'intermediate_size':120,"), "states of 120 channels"},
        {MAMBA_2("'time_step_limit':[0.0,0.1],"), "time_step_limit"},
        {MAMBA_2("'conv_kernel':3,"), "conv_kernel"},
        {MAMBA_2("'use_bias':true,"), "use_bias"},
        {JAMBA("'mamba_conv_bias':false,"), "mamba_conv_bias"},
        {JAMBA("'mamba_proj_bias':true,"), "mamba_proj_bias"},
        {JAMBA("'hidden_size':72,'mamba_expand':1,'head_dim':16,"), "states of 72 channels"},
        {STATE_SPACE("'mamba','attention'", NO_EXPERTS ",'mamba_conv_bias':false"), "mamba_conv_bias"},
        {STATE_SPACE("'mamba','attention'", NO_EXPERTS ",'mamba_proj_bias':true"), "mamba_proj_bias"},
        {STATE_SPACE("'mamba','attention'", NO_EXPERTS ",'position_embedding_type':'alibi'"), "\"alibi\""},
        {NEMOTRON_H("'layers_block_type':['attention','moe','moe']", NEMOTRON_EXPERTS),
         "follows neither attention nor a state"},
        {NEMOTRON_H("'hybrid_override_pattern':'-M*'", ""), "follows neither attention nor a state"},
        {NEMOTRON_H("'hybrid_override_pattern':'M--*'", ""), "follows neither attention nor a state"},
        {NEMOTRON_H("'hybrid_override_pattern':'M-R'", ""), "of the kind \"R\""},
        {NEMOTRON_H("'layers_block_type':['mamba','rwkv']", ""), "of the kind \"rwkv\""},
        {NEMOTRON_H("'hybrid_override_pattern':'M-M-'", ""), "no layer has attention"},
        {NEMOTRON_H("'hybrid_override_pattern':'M*'", ",'conv_kernel':3"), "conv_kernel"},
        {NEMOTRON_H("'hybrid_override_pattern':'M*'", ",'use_conv_bias':false"), "use_conv_bias"},
        {NEMOTRON_H("'hybrid_override_pattern':'M*'", ",'mamba_proj_bias':true"), "mamba_proj_bias"},
        {NEMOTRON_H("'hybrid_override_pattern':'M*'", ",'mlp_hidden_act':'silu'"), "mlp_hidden_act"},
        {NEMOTRON_H("'hybrid_override_pattern':'M*'", ",'mlp_hidden_act':'-Infinity'"),
         "mlp_hidden_act \"-Infinity\""},
        {NEMOTRON_H("'hybrid_override_pattern':'M*'", ",'time_step_limit':[0.0,0.1]"), "time_step_limit"},
        {LLAMA(",'bias':true"), "bias"},
        {LLAMA(",'use_cla':true"), "use_cla"},
        {LLAMA(",'qkv_bias':true"), "qkv_bias"},
        {LLAMA(",'partial_rotary_factor':0.5"), "partial_rotary_factor"},
        {LLAMA(",'rope_parameters':{'rope_type':'default','partial_rotary_factor':0.5}"),
         "partial_rotary_factor"},
        {LLAMA(",'no_rope_layers':[1,0]"), "no_rope_layers"},
        {LLAMA(",'attn_logit_softcapping':50.0"), "attn_logit_softcapping"},
        {LLAMA(",'rope_scaling':{'rope_type':'axial','factor':2.0}"), "\"axial\" is not supported"},
    };
    for (size_t i = 0; i < array_length(cases); i++)
        expect_refusal(cases[i].config, STATUS_UNSUPPORTED, cases[i].sentence);
}

static void refuses_what_makes_no_sense(void **state)
{
    (void)state;
    static const struct {
        const char *config, *sentence;
    } cases[] = {
        {JAMBA("'attn_layer_offset':2,"), "attn_layer_offset should be less than attn_layer_period"},
        {JAMBA("'expert_layer_offset':2,"), "expert_layer_offset should be less than expert_layer_period"},
        {JAMBA("'expert_layer_period':0,"), "expert_layer_period"},
        {JAMBA("'mamba_d_state':512,"), "size of a channel's state"},
        {JAMBA("'mamba_dt_rank':-1,"), "mamba_dt_rank"},
        {GPT_NEO(""), "attention_layers has 0 entries for 4 layers"},
        {"", "not JSON"},
        {"[1]", "not a JSON object"},
        {"{'architectures':['LlamaForCausalLM']}", "hidden_size is missing"},
        {HYBRID(",'layer_types':['full_attention']"), "layer_types has 1 entries for 2 layers"},
        {HYBRID(",'full_attention_interval':2,'linear_num_value_heads':24"),
         "24 value heads cannot share 16"},
        {HYBRID(",'full_attention_interval':2,'linear_key_head_dim':100000"), "size of a key head"},
        {NEMOTRON_H("'hybrid_override_pattern':'M*'", ",'num_hidden_layers':3"),
         "has 2 entries for 3 layers"},
        {NEMOTRON_H("'num_hidden_layers':2", ""), "has 0 entries for 2 layers"},
        {NEMOTRON_H("'hybrid_override_pattern':'M-*E'", ""), "the number of experts is missing"},
        {NEMOTRON_H("'hybrid_override_pattern':'M-*E'", ",'n_routed_experts':8"), "experts of a token is 0"},
        {STATE_SPACE("'attention'", NO_EXPERTS), "layer_types has 1 entries for 2 layers"},
        {STATE_SPACE("'mamba','attention'", ""), "the number of experts is missing"},
        {STATE_SPACE("'mamba','attention'", NO_EXPERTS ",'mamba_d_head':64"),
         "mamba_expand times hidden_size"},
        {STATE_SPACE("'mamba','attention'", NO_EXPERTS ",'mamba_n_groups':3"),
         "4 value heads cannot share 3"},
        {STATE_SPACE("'mamba','attention'", NO_EXPERTS ",'mamba_d_state':100000"), "size of a key head"},
        {LLAMA(",'num_key_value_heads':0"), "num_key_value_heads should be"},
        {LLAMA(",'num_key_value_heads':3"), "number of K/V heads is 3"},
        {LLAMA(",'head_dim':1.5"), "head_dim should be"},
        {LLAMA(",'head_dim':33"), "an even number"},
        {LLAMA(",'head_dim':100000"), "size of a head"},
        {LLAMA(",'max_position_embeddings':1e12"), "max_position_embeddings should be"},
        {GEMMA_4_WITHOUT(",'rope_parameters':{},'hidden_size_per_layer_input':0,'sliding_window_pattern':2"),
         "sliding_window is missing"},
        {GEMMA_4(",'hidden_size_per_layer_input':0,'attention_k_eq_v':true,'num_global_key_value_heads':3"),
         "the number of K/V heads is 3; 1 to 2 are possible"},
        {GEMMA_4(",'hidden_size_per_layer_input':0,'global_head_dim':2000"), "the size of a head is 2000"},
        {LAGUNA(",'num_attention_heads_per_layer':[4]"), "has 1 entries for 3 layers"},
        {LAGUNA(",'num_attention_heads_per_layer':[4,0,4]"), "no list of possible numbers"},
        {LAGUNA(",'num_attention_heads_per_layer':[3,3,3]"), "3 attention heads cannot share 2"},
        {MIMO(",'hybrid_layer_pattern':[0,1]"), "hybrid_layer_pattern has 2 entries for 3 layers"},
        {MIMO(",'hybrid_layer_pattern':[0,1,2]"), "neither 0 nor 1"},
        {MIMO(",'v_head_dim':256"), "the size of a head of values is 256"},
        {GEMMA_4(",'enable_moe_block':true"), "the number of experts is missing"},
        {GEMMA_4(",'num_kv_shared_layers':2"), "layers with K and V of their own is 0"},
        {GEMMA_4(",'num_kv_shared_layers':1"), "there are no K and V that layer 1 could share"},
        {GEMMA_4(",'vocab_size_per_layer_input':31"),
         "layers have embeddings of 31 tokens where there are 32"},
        {GEMMA_3N(",'intermediate_size':64,'activation_sparsity_pattern':[0.95]"),
         "activation_sparsity_pattern has 1 entries for 2 layers"},
        {GEMMA_3N(",'intermediate_size':64,'activation_sparsity_pattern':[0.95,1]"),
         "activation_sparsity_pattern is no list of parts of 1"},
        {GEMMA_3N(",'intermediate_size':64,'activation_sparsity_pattern':'x'"), "no list of parts of 1"},
        {GEMMA_3N(",'intermediate_size':[64,'x']"), "intermediate_size is no list of possible numbers"},
        {GEMMA_3N(",'intermediate_size':64,'laurel_rank':0"), "laurel_rank should be"},
        {LLAMA(",'rms_norm_eps':-1"), "rms_norm_eps should be"},
        {LLAMA(",'tie_word_embeddings':1"), "tie_word_embeddings should be true or false"},
        {SOLAR(""), "moe_intermediate_size"},
        {SOLAR(",'intermediate_size':64,'moe_intermediate_size':[32,'x']"),
         "moe_intermediate_size is no list of possible numbers"},
        {SOLAR(",'moe_intermediate_size':32,'mlp_layer_types':['dense']"), "1 entries for 2 layers"},
        {LLAMA(",'rope_theta':0"), "theta"},
        {LLAMA(",'rope_theta':'x'"), "rope_theta should be"},
        {LLAMA(",'rope_scaling':7"), "should be an object"},
        {LLAMA(",'rope_scaling':{'type':'linear'}"), "factor of the rotation's scaling is missing"},
        {LLAMA(",'rope_scaling':{'type':'linear','factor':0.5}"), "1 or more"},
        {LLAMA(",'rope_scaling':{'type':'su','long_factor':[1],'short_factor':[1]}"),
         "long_factor has 1 entries"},
        {LLAMA(",'rope_scaling':{'rope_type':'llama3','factor':8}"), "original context length"},
        {LLAMA(",'rope_scaling':{'rope_type':'llama3','factor':8,'original_max_position_embeddings':8192,"
               "'low_freq_factor':4,'high_freq_factor':1}"),
         "ascending"},
        {"{'architectures':['LlamaForCausalLM'],'hidden_size':65,'intermediate_size':64,'num_attention_heads'"
         ":2,"
         "'num_hidden_layers':2,'vocab_size':32}",
         "head_dim is missing"},
        {"{'architectures':['LlamaForCausalLM'],'hidden_size':2147483647,'intermediate_size':64,"
         "'num_attention_heads':2147483647,'num_hidden_layers':2,'vocab_size':32,'head_dim':64}",
         "hidden size"},
        {"{'architectures':['LlamaForCausalLM'],'hidden_size':64,'intermediate_size':64,"
         "'num_attention_heads':1048576,'num_hidden_layers':2,'vocab_size':32,'head_dim':1024}",
         "width of all heads"},
        {"{'architectures':['LlamaForCausalLM'],'hidden_size':64,'intermediate_size':64,"
         "'num_attention_heads':2,'num_hidden_layers':2000000000,'vocab_size':32}",
         "number of layers"},
    };
    for (size_t i = 0; i < array_length(cases); i++)
        expect_refusal(cases[i].config, STATUS_INVALID, cases[i].sentence);
}

static void a_missing_config_is_not_found(void **state)
{
    (void)state;
    struct model_config c;
    struct generation_defaults d;
    assert_int_equal(hf_config_read(directory, &c, &d, NULL), STATUS_NOT_FOUND);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(reads_llama_3_1),
        TEST(reads_both_forms_of_the_rotation_alike),
        TEST(a_scaling_added_by_hand_goes_before),
        TEST(reads_llama_2),
        TEST(reads_qwen_2_5),
        TEST(reads_qwen_3),
        TEST(reads_mistral_windows),
        TEST(windows_are_a_layer_s_own),
        TEST(reads_llama_4),
        TEST(reads_text_models_of_wrappers),
        TEST(reads_ministral),
        TEST(refuses_other_layer_norms),
        TEST(reads_modernbert),
        TEST(reads_nomic_bert),
        TEST(reads_glm_4_7_flash),
        TEST(reads_deepseek),
        TEST(reads_nemotron_h),
        TEST(reads_nemotron_3),
        TEST(reads_decilm),
        TEST(reads_falcon_h1),
        TEST(reads_jamba),
        TEST(reads_a_model_of_states_alone),
        TEST(reads_olmo_hybrid),
        TEST(reads_kimi_linear),
        TEST(reads_granite_swa),
        TEST(generation_config_adds_eos_ids_and_defaults),
        TEST(nothing_is_given_without_generation_config),
        TEST(reads_mimo),
        TEST(reads_gpt_2),
        TEST(reads_starcoder),
        TEST(reads_gpt_neo),
        TEST(reads_gpt_neox),
        TEST(reads_exaone_3),
        TEST(reads_internlm2),
        TEST(a_type_goes_before_the_class_that_saved_it),
        TEST(reads_hunyuan_moe),
        TEST(reads_qwen_2_moe),
        TEST(reads_falcon),
        TEST(reads_qwen_1),
        TEST(reads_ling_1),
        TEST(opt_is_read),
        TEST(alibi_is_read),
        TEST(listed_kv_heads_are_read),
        TEST(a_head_of_unit_rows_is_known),
        TEST(flint_must_list_its_layers),
        TEST(reads_laguna),
        TEST(reads_minicpm),
        TEST(reads_lfm3),
        TEST(reads_cohere_moe),
        TEST(refuses_what_it_does_not_compute),
        TEST(refuses_what_makes_no_sense),
        TEST(a_missing_config_is_not_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

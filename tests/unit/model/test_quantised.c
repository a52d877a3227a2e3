/* Quantised directories that are damaged, or of a form that is not here: each is refused with a sentence that names what is
 * wrong. What right ones compute is in test_families.c. */
#include "family_files.h"

#include "model/model_files.h"
#include "quantised_goldens.h"

enum { TENSORS_MAX = 1024 };

static int open_directory(const char *directory, struct error *err)
{
    struct model_files *files = NULL;
    *err = (struct error){0};
    int status = model_files_open(directory, "auto", &files, err);
    if (!status) model_files_close(files);
    return status;
}

/* golden with one tensor changed. */
static int open_changed(const struct family_golden *golden, size_t i, struct family_tensor changed,
                        struct error *err)
{
    struct family_tensor tensors[TENSORS_MAX];
    struct family_golden own = *golden;
    char directory[TEST_PATH_BYTES];
    assert_true(golden->num_tensors <= TENSORS_MAX);
    memcpy(tensors, golden->tensors, golden->num_tensors * sizeof *tensors);
    tensors[i] = changed;
    own.tensors = tensors;
    make_directory(directory);
    family_write_directory(&own, directory);
    int status = open_directory(directory, err);
    remove_directory(directory);
    return status;
}

static void expect_damage(const struct family_golden *g, size_t i, struct family_tensor changed,
                          const char *how)
{
    struct error err;
    const char *name = g->tensors[i].name;
    char layer[64];
    snprintf(layer, sizeof layer, "%.*s", (int)(strrchr(name, '.') - name), name);
    int status = open_changed(g, i, changed, &err);
    if (!status || !strstr(err.text, layer))
        fail_msg("%s: %s %s gives %d and \"%s\"", g->name, name, how, status, err.text);
}

/* Of the first matrix, each part; the groups of columns may be missing. */
static void parts_must_be_there_and_of_the_right_type_and_shape(void **state)
{
    (void)state;
    for (size_t n = 0; n < array_length(quantised_goldens); n++) {
        const struct family_golden *g = &quantised_goldens[n];
        size_t i = 0, num = 0;
        if (strstr(g->name, "bitnet, online")) continue; /* its matrices are plain ones */
        while (!g->tensors[i].rows || !strcmp(g->tensors[i].dtype, "BF16")) i++;
        const size_t base = (size_t)(strrchr(g->tensors[i].name, '.') - g->tensors[i].name);
        for (; !strncmp(g->tensors[i].name, g->tensors[i - num].name, base); i++, num++) {
            struct family_tensor t = g->tensors[i];
            const bool is_scale = t.scale != 0 || strstr(t.name, "scale");
            const char *last = strrchr(t.name, '.');
            const bool may_be_plain =
                !strcmp(last, ".weight") || !strcmp(last, ".down_proj") || !strcmp(last, ".gate_up_proj");
            /* those may be missing; an integer of torchao's without a zero point is symmetric, what has no scale of columns
             * multiplies none, MLX's NVFP4 without one of all has none */
            if (!strstr(t.name, "g_idx") && !strstr(t.name, "weight_format") &&
                !strstr(t.name, "._weight_zero_point") && !strstr(t.name, "pre_quant_scale") &&
                !strstr(t.name, "global_scale")) {
                t.name = "another";
                expect_damage(g, i, t, "missing");
            }
            t = g->tensors[i];
            t.cols += strcmp(t.dtype, "U32") ? 8 : 9; /* MLX may have 8 more words, of codes of more bits */
            expect_damage(g, i, t, "with more columns");
            t = g->tensors[i];
            t.dtype = is_scale ? "I32" : may_be_plain ? "BOOL" : "F16";
            t.low = 0;
            t.count = 256;
            expect_damage(g, i, t, "of another type");
        }
        assert_true(num >= 2);
    }
}

static void groups_must_be_groups(void **state)
{
    (void)state;
    size_t num = 0;
    for (size_t n = 0; n < array_length(quantised_goldens); n++) {
        const struct family_golden *g = &quantised_goldens[n];
        for (size_t i = 0; i < g->num_tensors; i++) {
            if (!strstr(g->tensors[i].name, "g_idx")) continue;
            struct family_tensor t = g->tensors[i];
            t.count = 256; /* any bytes */
            t.low = 0;
            expect_damage(g, i, t, "with random groups");
            num++;
            break;
        }
    }
    assert_true(num >= 3);
}

static size_t find_part(const struct family_golden *g, const char *ending)
{
    size_t i = 0;
    while (!strstr(g->tensors[i].name, ending)) i++;
    return i;
}

/* Bytes that say something have to say it. */
static void states_must_make_sense(void **state)
{
    (void)state;
    static const char *const states[] = {"{'blocksize':64,'shape':[192,320]",
                                         "[64]",
                                         "{'shape':[192,320]}",
                                         "{'blocksize':0,'shape':[192,320]}",
                                         "{'blocksize':64,'shape':[320,192]}",
                                         "{'blocksize':64,'shape':[192]}",

                                         "{'blocksize':64,'shape':[192,320],'nested_offset':'0'}",
                                         "{'blocksize':64,'nested_blocksize':-1,'shape':[192,320]}"};
    size_t num = 0;
    for (size_t n = 0; n < array_length(quantised_goldens); n++) {
        const struct family_golden *g = &quantised_goldens[n];
        if (!strstr(g->name, "bitsandbytes, nf4") || strstr(g->name, "moe")) continue;
        const size_t i = find_part(g, "quant_state");
        for (size_t j = 0; j < array_length(states); j++, num++) {
            char text[128];
            struct family_tensor t = g->tensors[i];
            snprintf(text, sizeof text, "%s", states[j]);
            for (char *at = text; *at; at++) *at = *at == '\'' ? '"' : *at;
            t.shape = text;
            t.cols = strlen(text);
            expect_damage(g, i, t, states[j]);
        }
    }
    assert_true(num > 0);
}

/* What all of a matrix is divided by. */
static void a_scale_of_0_is_named(void **state)
{
    (void)state;
    for (size_t n = 0; n < array_length(quantised_goldens); n++) {
        const struct family_golden *g = &quantised_goldens[n];
        if (!strstr(g->name, "bitnet, bitlinear")) continue;
        const size_t i = find_part(g, "weight_scale");
        struct family_tensor t = g->tensors[i];
        t.center = t.scale = 0;
        expect_damage(g, i, t, "that is 0");
        return;
    }
    fail();
}

static void columns_must_be_in_order(void **state)
{
    (void)state;
    for (size_t n = 0; n < array_length(quantised_goldens); n++) {
        const struct family_golden *g = &quantised_goldens[n];
        if (!strstr(g->name, "bitsandbytes, int8")) continue;
        const size_t i = find_part(g, "weight_format");
        struct family_tensor t = g->tensors[i];
        t.low = 2;
        expect_damage(g, i, t, "of a kernel");
        return;
    }
    fail();
}

#define LLAMA(quantisation)                                                                                  \
    "{'architectures':['LlamaForCausalLM'],'hidden_size':64,'intermediate_size':64,'num_attention_heads':2," \
    "'num_hidden_layers':2,'vocab_size':32,'quantization_config':" quantisation "}"
#define GROUP(format, weights)                                                                               \
    LLAMA("{'quant_method':'compressed-tensors','format':'" format                                           \
          "','config_groups':{'group_0':{'weights':"                                                         \
          "{" weights "}}}}")

static void forms_that_are_not_here_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *config, *sentence;
    } cases[] = {
        {LLAMA("3"), "should be an object"},
        {LLAMA("{}"), "quant_method \"\", which is not supported; known are fp8, fbgemm_fp8, modelopt, "},
        {LLAMA("{'quant_method':'higgs'}"), "quant_method \"higgs\", which is not supported"},
        {LLAMA("{'quant_method':'bitsandbytes','load_in_4bit':true,'bnb_4bit_quant_storage':'bfloat16'}"),
         "bnb_4bit_quant_storage \"bfloat16\", which is not supported; uint8 is"},
        {LLAMA("{'quant_method':'bitnet','linear_class':'linear'}"),
         "linear_class \"linear\", which is not supported; bitlinear and autobitlinear are"},
        {LLAMA("{'quant_method':'bitnet','quantization_mode':'later'}"), "quantization_mode \"later\""},
        {LLAMA("{'quant_method':'bitnet','use_rms_norm':true}"), "use_rms_norm"},
        {LLAMA("{'quant_method':'bitnet','linear_class':'autobitlinear','quantization_mode':'online',"
               "'modules_to_not_convert':['lm_head','up_proj']}"),
         "modules_to_not_convert \"up_proj\", which is not supported; lm_head is"},
        {"{'architectures':['BitnetForCausalLM'],'hidden_size':64,'intermediate_size':64,"
         "'num_attention_heads':2,'num_hidden_layers':2,'vocab_size':32,'weight_bits':2}",
         "weight_bits is not supported unless it is 1"},
        {LLAMA("{'quant_method':'fp8','fmt':'e5m2'}"), "fmt \"e5m2\""},
        {LLAMA("{'quant_method':'fp8','weight_block_size':[128]}"), "no two numbers"},
        {LLAMA("{'quant_method':'awq','bits':4,'group_size':128,'version':'gemv'}"), "version \"gemv\""},
        {LLAMA("{'quant_method':'awq','bits':4}"), "group_size is missing"},
        {LLAMA("{'quant_method':'gptq','bits':5,'group_size':128}"), "weights of 5 bits"},
        {LLAMA("{'quant_method':'gptq','bits':4,'group_size':128,'checkpoint_format':'marlin'}"),
         "checkpoint_format \"marlin\""},
        {LLAMA("{'quant_method':'auto-round','packing_format':'auto_round:fake','bits':4,'group_size':128}"),
         "packing_format \"auto_round:fake\", which is not supported; known are auto_round:auto_gptq, "},
        {LLAMA("{'quant_method':'auto-round','bits':4}"), "group_size is missing"},
        {LLAMA("{'quant_method':'modelopt','quant_algo':'W4A8'}"), "quant_algo \"W4A8\""},
        {LLAMA("{'quant_method':'compressed-tensors','format':'marlin-24'}"),
         "format \"marlin-24\", which is not supported; known are float-quantized, int-quantized, "},
        {LLAMA("{'quant_method':'compressed-tensors','format':'pack-quantized'}"), "no config_groups"},
        {GROUP("pack-quantized", "'num_bits':9,'strategy':'channel'"), "weights of 9 bits"},
        {GROUP("pack-quantized", "'num_bits':4,'strategy':'group'"), "group_size is missing"},
        {GROUP("int-quantized", "'num_bits':4,'strategy':'group'"), "group_size is missing"},
        {GROUP("float-quantized", "'num_bits':4,'type':'float'"), "float weights of 4 bits"},
        {GROUP("float-quantized", "'num_bits':8,'type':'float','symmetric':false"), "with zero points"},
        {LLAMA(
             "{'quant_method':'compressed-tensors','format':'pack-quantized','config_groups':{'a':{'weights':"
             "{'num_bits':4}},'b':{'weights':{'num_bits':1}}}}"),
         "weights of 1 bits"},
        {LLAMA("{'quant_method':'compressed-tensors','format':'pack-quantized','transform_config':{'a':1}}"),
         "transform_config"},
    };
    char directory[TEST_PATH_BYTES], config[2048];
    make_directory(directory);
    for (size_t i = 0; i < array_length(cases); i++) {
        struct error err;
        snprintf(config, sizeof config, "%s", cases[i].config);
        for (char *c = config; *c; c++)
            if (*c == '\'') *c = '"';
        write_text(directory, "config.json", config);
        int status = open_directory(directory, &err);
        if ((status != STATUS_UNSUPPORTED && status != STATUS_INVALID) ||
            !strstr(err.text, cases[i].sentence))
            fail_msg("%s: %d and \"%s\"", cases[i].config, status, err.text);
    }
    remove_directory(directory);
}

/* What a checkpoint multiplies activations by cannot be left out. */
static void scaled_activations_of_other_forms_are_refused(void **state)
{
    (void)state;
    struct family_tensor tensors[TENSORS_MAX];
    size_t i = 0;
    while (strcmp(quantised_goldens[i].name, "llama: awq") != 0) i++;
    struct family_golden own = quantised_goldens[i];
    char directory[TEST_PATH_BYTES];
    struct error err;
    memcpy(tensors, own.tensors, own.num_tensors * sizeof *tensors);
    tensors[own.num_tensors++] =
        (struct family_tensor){.name = "model.layers.1.self_attn.q_proj.pre_quant_scale",
                               .dtype = "BF16",
                               .cols = 192,
                               .center = 1,
                               .scale = 0.5f};
    own.tensors = tensors;
    make_directory(directory);
    family_write_directory(&own, directory);
    assert_int_not_equal(open_directory(directory, &err), STATUS_OK);
    assert_non_null(strstr(err.text, "layers.1.self_attn.q_proj.pre_quant_scale is to multiply activations"));
    remove_directory(directory);
}

static const struct family_golden *golden_of(const char *name)
{
    for (size_t i = 0; i < array_length(quantised_goldens); i++)
        if (!strcmp(quantised_goldens[i].name, name)) return &quantised_goldens[i];
    fail_msg("there is no %s", name);
    return NULL;
}

/* Writes it under another quantization_config, with ' for each quote. */
static void write_under(const struct family_golden *g, const char *config, const char *directory)
{
    char text[4096], own[1024];
    const char *at = strstr(g->config, "\"quantization_config\": {");
    snprintf(own, sizeof own, "%s", config);
    for (char *c = own; *c; c++) *c = *c == '\'' ? '"' : *c;
    snprintf(text, sizeof text, "%.*s\"quantization_config\": %s}", (int)(at - g->config), g->config, own);
    struct family_golden other = *g;
    other.config = text;
    family_write_directory(&other, directory);
}

/* Under another config the file's matrices mean the same. */
static void expect_same(const char *golden, const char *config)
{
    const struct family_golden *g = golden_of(golden);
    char before[TEST_PATH_BYTES], after[TEST_PATH_BYTES];
    struct model_files *files[2] = {NULL, NULL};
    struct error err = {0};
    make_directory(before);
    make_directory(after);
    family_write_directory(g, before);
    write_under(g, config, after);
    assert_int_equal(model_files_open(before, "auto", &files[0], &err), STATUS_OK);
    if (model_files_open(after, "auto", &files[1], &err) != STATUS_OK) fail_msg("%s: %s", config, err.text);
    for (enum weight_role role = WEIGHT_Q; role <= WEIGHT_DOWN; role++) {
        const struct weight_view a = model_files_weight(files[0], role, 1),
                                 b = model_files_weight(files[1], role, 1);
        assert_true(!a.data == !b.data && a.dtype == b.dtype && a.scheme == b.scheme && a.cols == b.cols);
        assert_true(a.codes.zero == b.codes.zero && a.codes.bits == b.codes.bits &&
                    a.codes.flip == b.codes.flip && a.codes.scale_rows == b.codes.scale_rows &&
                    a.codes.scale_cols == b.codes.scale_cols && a.codes.scales.cols == b.codes.scales.cols &&
                    !a.codes.groups == !b.codes.groups && !a.codes.zeros.data == !b.codes.zeros.data);
    }
    model_files_close(files[0]);
    model_files_close(files[1]);
    remove_directory(before);
    remove_directory(after);
}

static void other_programs_write_the_same_forms(void **state)
{
    (void)state;
    expect_same("llama: mxfp8", "{'quant_method':'auto-round','packing_format':'auto_round:llm_compressor'}");
    expect_same("llama: fp8, one scale",
                "{'quant_method':'auto-round','data_type':'fp','bits':8,'group_size':0}");
    expect_same("llama: fp8, rows", "{'quant_method':'modelopt','quant_algo':'FP8_PER_CHANNEL_PER_TOKEN'}");
    expect_same("llama: int8, rows", "{'quant_method':'modelopt','quant_algo':'W8A16'}");
    expect_same("llama: nvfp4, modelopt", "{'quant_method':'modelopt','quant_algo':'W4A16_NVFP4'}");
    expect_same("llama: mxfp4", "{'quant_method':'modelopt','quant_algo':'mxfp4'}");
    expect_same("llama: gptq",
                "{'quant_method':'auto-round','packing_format':'auto_round:auto_gptq','bits':4,"
                "'group_size':32,'data_type':'int','sym':false}");
    expect_same("llama: gptq", "{'quant_method':'intel/auto-round','bits':4,'group_size':32}");
    expect_same("llama: gptq, in no order",
                "{'quant_method':'auto-round','packing_format':'auto_round:gptqmodel',"
                "'bits':4,'group_size':64}");
    expect_same("llama: awq", "{'quant_method':'auto-round','packing_format':'auto_round:auto_awq','bits':4,"
                              "'group_size':64,'sym':true}");
    expect_same("llama: fp8, blocks",
                "{'quant_method':'auto-round','packing_format':'auto_round:fp8','bits':8,"
                "'data_type':'fp','weight_block_size':[128,128]}");
    expect_same("llama: nvfp4",
                "{'quant_method':'auto-round','packing_format':'auto_round:llm_compressor','bits':4,"
                "'data_type':'nv_fp'}");
    expect_same("llama: mxfp4",
                "{'quant_method':'auto-round','packing_format':'auto_round:llm_compressor','bits':4,"
                "'data_type':'mx_fp'}");
    expect_same("llama: fp8, one scale", "{'quant_method':'quark','global_quant_config':{'weight':"
                                         "{'dtype':'fp8_e4m3','qscheme':'per_tensor'}}}");
    expect_same("llama: fp8, rows", "{'quant_method':'quark','global_quant_config':{'weight':"
                                    "{'dtype':'fp8_e4m3','qscheme':'per_channel','ch_axis':0}}}");
}

static bool wants_quantised_rows(const char *golden, const char *config)
{
    char directory[TEST_PATH_BYTES];
    struct model_files *files = NULL;
    struct error err = {0};
    make_directory(directory);
    write_under(golden_of(golden), config, directory);
    if (model_files_open(directory, "auto", &files, &err) != STATUS_OK) fail_msg("%s: %s", config, err.text);
    const bool wants = model_files_config(files)->quantisation.wants_quantised_activations;
    model_files_close(files);
    remove_directory(directory);
    return wants;
}

/* With zero points of their own they stay as they are. */
static void activations_are_to_be_quantised_where_the_checkpoint_says_so(void **state)
{
    (void)state;
    static const struct {
        const char *activations;
        bool wants;
    } cases[] = {{"{'num_bits':8,'type':'int','strategy':'token','symmetric':true,'dynamic':true}", true},
                 {"{'num_bits':8,'type':'int','strategy':'token','symmetric':false,'dynamic':true}", false},
                 {"null", false}};
    char config[512];
    for (size_t i = 0; i < array_length(cases); i++) {
        snprintf(config, sizeof config,
                 "{'quant_method':'compressed-tensors','format':'int-quantized','config_groups':{'group_0':{"
                 "'targets':['Linear'],'weights':{'num_bits':8,'type':'int','strategy':'channel','symmetric':"
                 "true},'input_activations':%s}}}",
                 cases[i].activations);
        if (wants_quantised_rows("llama: int8, rows", config) != cases[i].wants)
            fail_msg("%s", cases[i].activations);
    }
    static const char *const torchao[] = {"Float8DynamicActivationFloat8WeightConfig",
                                          "Int8DynamicActivationInt8WeightConfig", "Float8WeightOnlyConfig"};
    for (size_t i = 0; i < array_length(torchao); i++) {
        snprintf(config, sizeof config, "{'quant_method':'torchao','quant_type':{'default':{'_type':'%s'}}}",
                 torchao[i]);
        assert_int_equal(wants_quantised_rows("llama: torchao, fp8", config), i < 2);
    }
}

/* Shapes say what a matrix has, where it differs from what the config says of most. */
static void matrices_may_differ_in_bits_and_groups(void **state)
{
    (void)state;
    expect_same("llama: gptq, 8 bits", "{'quant_method':'gptq','bits':4,'group_size':128,'sym':false}");
    expect_same("llama: gptq, 3 bits, in no order",
                "{'quant_method':'gptq','bits':4,'group_size':-1,'desc_act':true}");
    expect_same("llama: gptq", "{'quant_method':'auto-round','bits':2,'group_size':64}");
}

/* MLX's own object goes before that of a checkpoint which was quantised before; tensors say all that it does. */
static void mlx_has_a_key_of_its_own(void **state)
{
    (void)state;
    expect_same("llama: mlx, 4 bits", "{'quant_method':'fp8'},'quantization':{'group_size':64,'bits':4}");
    expect_same("llama: mlx, 6 bits", "{'group_size':32,'bits':4,'mode':'affine'}");
    expect_same("llama: mlx, nvfp4", "{'group_size':64,'bits':4,'lm_head':{'bits':8,'group_size':32}}");
}

static void write_with_quotes(const char *directory, const char *name, const char *text)
{
    char own[512];
    snprintf(own, sizeof own, "%s", text);
    for (char *c = own; *c; c++) *c = *c == '\'' ? '"' : *c;
    write_text(directory, name, own);
}

/* Where config.json says nothing. */
static void modelopts_own_file_is_read(void **state)
{
    (void)state;
    char directory[TEST_PATH_BYTES];
    struct error err;
    static const struct {
        const char *file, *sentence;
    } cases[] = {
        {"{'producer':{'name':'modelopt'},'quantization':{'quant_algo':'NVFP4_SVDQUANT'}}",
         "hf_quant_config.json: quantization_config has quant_algo \"NVFP4_SVDQUANT\""},
        {"{'quantization':3}", "quantization should be an object"},
        {"{'quantization':", "not JSON"},
        {"{'quantization':{'quant_algo':'NVFP4','group_size':16}}", "neither model.safetensors"},
        {"{}", "neither model.safetensors"},
    };
    make_directory(directory);
    write_with_quotes(directory, "config.json",
                      "{'architectures':['LlamaForCausalLM'],'hidden_size':64,'intermediate_size':64,'num_"
                      "attention_heads':2,'num_hidden_layers':2,'vocab_size':32}");
    for (size_t i = 0; i < array_length(cases); i++) {
        write_with_quotes(directory, "hf_quant_config.json", cases[i].file);
        assert_int_not_equal(open_directory(directory, &err), STATUS_OK);
        if (!strstr(err.text, cases[i].sentence)) fail_msg("%s: \"%s\"", cases[i].file, err.text);
    }
    remove_directory(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_must_be_there_and_of_the_right_type_and_shape),
        cmocka_unit_test(groups_must_be_groups),
        cmocka_unit_test(states_must_make_sense),
        cmocka_unit_test(a_scale_of_0_is_named),
        cmocka_unit_test(columns_must_be_in_order),
        cmocka_unit_test(forms_that_are_not_here_are_named),
        cmocka_unit_test(scaled_activations_of_other_forms_are_refused),
        cmocka_unit_test(other_programs_write_the_same_forms),
        cmocka_unit_test(activations_are_to_be_quantised_where_the_checkpoint_says_so),
        cmocka_unit_test(matrices_may_differ_in_bits_and_groups),
        cmocka_unit_test(mlx_has_a_key_of_its_own),
        cmocka_unit_test(modelopts_own_file_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

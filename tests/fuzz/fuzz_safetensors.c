/* A Hugging Face directory without its tokenizer: config.json, generation_config.json, safetensors files and
 * their index (memory_files.h has the form of the input). */
#include "fuzz/memory_files.h"

#include "base/check.h"
#include "files/weight_codes.h"
#include "files/weight_hqq.h"
#include "model/model_files.h"
#include "model/unpacked.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile unsigned char sink;

/* Of a quantised matrix the corners, as a device reads them. */
static void use_codes(const struct weight_view *v)
{
    const int64_t last_row = weight_view_num_rows(v) - 1, last_col = v->cols - 1;
    for (int corner = 0; corner < 4; corner++) {
        const struct code_block b = {.view = v, .row = corner % 2 ? last_row : 0, .num_rows = 1};
        uint8_t codes[1][CODE_ROWS], zeros[CODE_ROWS];
        float scales[CODE_ROWS];
        weight_read_codes(&b, corner / 2 ? last_col : 0, 1, codes);
        weight_read_scales(&b, corner / 2 ? last_col : 0, scales, zeros);
        sink = codes[0][0] + zeros[0] + (unsigned char)(scales[0] > 0);
    }
}

static void use_weight(struct weight_view v)
{
    struct unpacked unpacked = {0};
    struct weight_view own = v;
    struct error err;
    if (unpacked_is_needed(&v, true) && unpacked_make(&unpacked, &own, true, &err) == 0)
        sink = ((const unsigned char *)own.data)[0];
    else if (v.data && v.scheme != WEIGHT_PLAIN)
        use_codes(&v);
    unpacked_clear(&unpacked);
    uint64_t n = v.data ? (uint64_t)v.rows * dtype_row_bytes(v.dtype, (uint64_t)v.cols) : 0;
    if (v.scheme == WEIGHT_TERNARY) n = weight_view_bytes(&v);
    if (v.scheme == WEIGHT_HQQ)
        n = weight_hqq_bytes(v.codes.bits, v.rows * v.cols, v.codes.scale_cols, v.codes.groups_lie_down);
    if (v.scheme == WEIGHT_BITS) n = n * v.codes.bits / 8;
    if (n == 0) return;
    sink = ((const unsigned char *)v.data)[0];
    sink = ((const unsigned char *)v.data)[n - 1];
}

static void use_model(const struct model_files *f)
{
    const struct model_config *c = model_files_config(f);
    assert_always(c->num_layers >= 1 && c->vocab_size >= 1 && c->num_heads >= 1 && c->head_dim >= 1);
    sink = (unsigned char)model_config_kv_bytes_per_token(c, DTYPE_BF16);
    sink = (unsigned char)model_config_num_parameters(c);
    for (int32_t layer = 0; layer < c->num_layers; layer++)
        for (int role = 0; role < WEIGHT_ROLE_COUNT; role++)
            use_weight(model_files_weight(f, (enum weight_role)role, layer));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct model_files *f = NULL;
    struct error err = {0};
    memory_files_add("generation_config.json", "{}", 2, 0);
    memory_files_add_parts(data, size);
    if (model_files_open(MEMORY_DIRECTORY, "auto", &f, &err) == 0) {
        use_model(f);
        model_files_close(f);
    } else {
        assert_always(err.text[0]);
    }
    memory_files_clear();
    return 0;
}

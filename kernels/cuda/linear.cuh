/* linear.cuh - matrix products x W^T: the weights, and which kernel computes a product of so many rows. */
#ifndef KERNELS_CUDA_LINEAR_CUH
#define KERNELS_CUDA_LINEAR_CUH

#include "kernels/cuda/device.cuh"

/* What the device keeps of a weight. */
enum linear_format {
    LINEAR_BF16,           /* weight */
    LINEAR_INT4,           /* packed: integers of four bits, less a zero point (packed.cuh) */
    LINEAR_INT4_SYMMETRIC, /* packed: integers of four bits, less 8, whose scales are numbers of bf16 */
    LINEAR_E2M1,           /* packed: floats of four bits */
    LINEAR_FP8,            /* fp8: bytes, e4m3 or integers; rows of x are quantised, too */
    LINEAR_BLOCKS,         /* packed: as a GGUF file has it (blocks.cuh) */
};

enum byte_form : int; /* linear_fp8.cuh */

/* Bytes as a file has them, and scales in the order that linear_fp8.cuh wants. */
struct fp8_weight {
    uint8_t *codes; /* [N][K], rows as weight has them */
    float *scales;  /* [N]; in blocks [K / 128][pitch], one for 8 rows each */
    int32_t pitch;
    enum byte_form form;
};

/* Rows that one tensor of a GGUF file has brought. */
struct block_part {
    enum dtype dtype;
    int32_t num_rows;
    size_t row_bytes, offset; /* offset: in linear.packed */
};

struct linear {
    enum linear_format format;
    __nv_bfloat16 *weight; /* [N][K]; for LINEAR_GATE_UP rows alternate: 8 of gate, 8 of up */
    struct fp8_weight fp8;
    float *bias;       /* [N] or NULL */
    float *logit_bias; /* the same where wide_output: cuda_logits adds it */
    unsigned char *packed;
    int32_t packed_scales;                      /* of a row and 128 columns */
    struct block_part blocks[LINEAR_PARTS_MAX]; /* LINEAR_BLOCKS; num_rows 0: no such part */
    struct linear *unpacked; /* of a packed one, but for logits: the same as bf16, a copy of its own or */
    bool is_rewritten;       /* in memory that all of them share: weight is written by the kernel before */
    int32_t rows_min;        /* of an unpacked one: no product of fewer rows is its */
    int32_t n, k;
    int num_parts;
    int32_t part_rows[LINEAR_PARTS_MAX]; /* of the parts that it was made of; 0 behind them */
    enum linear_kind kind;
    enum gate_function gate;
    float3 gate_values; /* GATE_XIELU: a, b, c */
    bool wide_output;
    float softcap;            /* of logits; 0: none */
    struct linear_plan *plan; /* shared by all linears of a shape; NULL: its rows are only looked up */
};

enum linear_kernel {
    LINEAR_BLAS, /* cuBLASLt, or a product of our own where none of its algorithms keeps the order (linear_plain.cu) */
    LINEAR_SMALL,     /* linear_small.cu */
    LINEAR_LARGE,     /* linear_large.cu */
    LINEAR_PACKED,    /* linear_packed.cu */
    LINEAR_PORTABLE,  /* linear_portable.cu */
    LINEAR_RELAY,     /* linear_relay.cu */
    LINEAR_OF_BLOCKS, /* linear_blocks.cu */
    LINEAR_UNPACKED,  /* packed weights become bf16 first */
};

/* What computes a product. It changes the speed and nothing else. */
struct linear_choice {
    enum linear_kernel kernel;
    int32_t
        tile_rows; /* rows of W a CTA owns: one of linear_small_tile_rows, of linear_packed_tile_rows, of linear_relay_tile_rows, of linear_blocks_tile_rows; of e4m3 always */
    int32_t cluster; /* LINEAR_LARGE: CTAs of a cluster, one of linear_large_clusters */
    int32_t
        columns; /* LINEAR_PACKED: rows of x that a CTA has at most; LINEAR_PORTABLE: 0 for few rows, else of a tile */
};

/* In a step. The linear knows its kind: this is both products of kernels/device.h. */
void cuda_linear(struct device *d, const struct batch *b, enum row_set rows, void *out, const void *x,
                 const struct linear *w);
bool cuda_norm_linear(struct device *d, const struct batch *b, enum row_set rows, void *out, void *sum,
                      const void *x, const void *delta, const struct norm_args *norm, const struct linear *w);
void cuda_linear_rows(struct cuda_device *d, int32_t rows, void *out, const void *x, const struct linear *w);
/* The product alone, [rows][N], of LINEAR_GATE_UP with columns as rows of weight alternate; and what a gate makes of it: of such columns in
 * gate_up, of LINEAR_UP in place, of others nothing. */
void cuda_linear_ungated(struct cuda_device *d, int32_t rows, void *out, const void *x,
                         const struct linear *w);
void cuda_linear_gate(struct cuda_device *d, int32_t rows, void *out, const struct linear *w);
/* gate.cuh: gate_alone, of so many values of bf16, in place; values: of xIELU alone. */
void cuda_gate_alone(struct cuda_device *d, void *out, size_t count, enum gate_function gate, float3 values);
/* Rows that a product computes for so many, where x and out have room for them. */
int32_t cuda_linear_padded(const struct linear *w, int32_t rows, int32_t room);
/* What was measured to be fastest for so many rows: LINEAR_BLAS until cuda_linear_plans. */
struct linear_choice cuda_linear_choice(const struct linear *w, int32_t rows);

/* Copies a weight into out, [rows][K] in bf16; alternate: as part 0 or 1 of gate and up (struct linear). */
bool cuda_upload_weight(struct cuda_device *d, __nv_bfloat16 *out, const struct weight_view *view,
                        bool alternate, int part);

/* Whether the kernels of linear_fp8.cuh take a weight as it is, and then its form. */
bool cuda_fp8_fits(const struct weight_view *v);
enum byte_form cuda_byte_form(const struct weight_view *v);
/* Room for n rows of k columns, which the device frees. */
bool cuda_alloc_fp8(struct cuda_device *d, struct fp8_weight *w, int64_t n, int32_t k, enum byte_form form);
/* Copies a weight to the rows of w from first_row on; alternate as in cuda_upload_weight. */
bool cuda_upload_fp8(struct cuda_device *d, const struct fp8_weight *w, const struct weight_view *view,
                     int64_t first_row, bool alternate, int part);

/* Makes w one of the device's linears of its shape. */
void cuda_linear_plan_create(struct cuda_device *d, struct linear *w);
/* When all weights are in: times and checks the candidates. */
int cuda_linear_plans(struct cuda_device *d, struct error *err);
void cuda_linears_forget(struct cuda_device *d);

#endif

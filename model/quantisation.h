/* quantisation.h - how a Hugging Face directory's matrices are quantised: quantization_config of its config.json, or what MLX calls
 * quantization.
 *
 * Where a checkpoint wants activations quantised as well, a device may keep them as they are, which is never less exact.
 * Which matrices are quantised says the file that has them (quantised_tensors.h). Read-only once it is read. Thread: any. */
#ifndef MODEL_QUANTISATION_H
#define MODEL_QUANTISATION_H

#include <stdbool.h>
#include <stdint.h>

#include "files/json_read.h"

enum quant_format {
    QUANT_NONE,
    QUANT_BYTES,  /* FP8 or int8 with scales of the whole, of rows or of blocks */
    QUANT_PACKED, /* compressed-tensors: words of integers, scales of groups */
    QUANT_NVFP4,
    QUANT_MXFP4,
    QUANT_MXFP4_BLOCKS, /* gpt-oss: of experts alone, all of a layer in one tensor */
    QUANT_GPTQ,
    QUANT_AWQ,
    QUANT_BITSANDBYTES, /* what it is says each matrix */
    QUANT_HQQ,          /* what it is says each matrix */
    QUANT_MLX,          /* what it is says each matrix */
    QUANT_TERNARY,      /* BitNet's: codes of two bits, or floats that become such */
    QUANT_MIXED,        /* as above to QUANT_MXFP4, which says each matrix */
};

struct quantisation {
    enum quant_format format;
    const char *name;                 /* for people */
    int32_t bits, group_size;         /* QUANT_BYTES, QUANT_PACKED, GPTQ, AWQ; group_size 0: a row */
    int32_t block_rows, block_cols;   /* QUANT_BYTES; 0: no blocks */
    bool has_integers;                /* QUANT_BYTES: and no floats */
    bool has_zeros;                   /* zero points of their own */
    bool zeros_less_one;              /* GPTQ's first format: stored zero points are one too small */
    bool scales_divide;               /* QUANT_TERNARY */
    bool has_floats;                  /* QUANT_TERNARY: all matrices of layers are, and no codes */
    bool wants_quantised_activations; /* without zero points */
};

/* r reads config.json's object, or the text model's in it. STATUS_UNSUPPORTED for what is not here, with a sentence that
 * names it. */
int quantisation_read(struct json_reader *r, struct quantisation *q) must_check;
/* Whether GPTQ's matrices of so many bits are read. */
bool quantisation_has_gptq_bits(int64_t bits);
/* r reads hf_quant_config.json, which older checkpoints of ModelOpt have instead. */
int quantisation_read_modelopt(struct json_reader *r, struct quantisation *q) must_check;

#endif

/* linear_set.h - the table of a set of panel kernels, the same for all of them but the portable one. The including file has
 * defined before what stands in it, each for its registers:
 *
 *   GATE_FUNCTIONS, argmax_add, lora_add_row, pack_int8, pack_int16
 *   DEFINE_PRODUCT(kind, dtype)    product_<dtype>, a panel_product */
#ifndef KERNELS_CPU_LINEAR_SET_H
#define KERNELS_CPU_LINEAR_SET_H

#include "kernels/cpu/linear_kernels.h"

/* The whole table, under the name of the set; integer_kind: which product takes the quants. */
#define DEFINE_KERNELS(set, integer_kind)                                                                    \
    DEFINE_PRODUCT(floats, DTYPE_F32)                                                                        \
    DEFINE_PRODUCT(floats, DTYPE_F16)                                                                        \
    DEFINE_PRODUCT(floats, DTYPE_BF16)                                                                       \
    DEFINE_PRODUCT(floats, DTYPE_MXFP4)                                                                      \
    DEFINE_PRODUCT(floats, DTYPE_F8_E4M3)                                                                    \
    DEFINE_PRODUCT(floats, DTYPE_I8)                                                                         \
    DEFINE_PRODUCT(floats, DTYPE_U4)                                                                         \
    DEFINE_PRODUCT(floats, DTYPE_F4_E2M1)                                                                    \
    DEFINE_PRODUCT(integer_kind, DTYPE_Q4_0)                                                                 \
    DEFINE_PRODUCT(integer_kind, DTYPE_Q4_1)                                                                 \
    DEFINE_PRODUCT(integer_kind, DTYPE_Q5_0)                                                                 \
    DEFINE_PRODUCT(integer_kind, DTYPE_Q5_1)                                                                 \
    DEFINE_PRODUCT(integer_kind, DTYPE_Q8_0)                                                                 \
    DEFINE_PRODUCT(integer_kind, DTYPE_Q4_K)                                                                 \
    DEFINE_PRODUCT(integer_kind, DTYPE_Q5_K)                                                                 \
    DEFINE_PRODUCT(integer_kind, DTYPE_Q6_K)                                                                 \
    DEFINE_PRODUCT(integer_kind, DTYPE_Q2_K)                                                                 \
    DEFINE_PRODUCT(integer_kind, DTYPE_Q3_K)                                                                 \
    DEFINE_PRODUCT(integer_kind, DTYPE_IQ4_NL)                                                               \
    DEFINE_PRODUCT(integer_kind, DTYPE_IQ4_XS)                                                               \
    DEFINE_PRODUCT(integer_kind, DTYPE_IQ2_XXS)                                                              \
    DEFINE_PRODUCT(integer_kind, DTYPE_IQ2_XS)                                                               \
    DEFINE_PRODUCT(integer_kind, DTYPE_IQ2_S)                                                                \
    DEFINE_PRODUCT(integer_kind, DTYPE_IQ3_XXS)                                                              \
    DEFINE_PRODUCT(integer_kind, DTYPE_IQ3_S)                                                                \
    DEFINE_PRODUCT(integer_kind, DTYPE_IQ1_S)                                                                \
    DEFINE_PRODUCT(integer_kind, DTYPE_IQ1_M)                                                                \
    DEFINE_PRODUCT(integer_kind, DTYPE_TQ1_0)                                                                \
    DEFINE_PRODUCT(integer_kind, DTYPE_TQ2_0)                                                                \
    DEFINE_PRODUCT(integer_kind, DTYPE_Q1_0)                                                                 \
    DEFINE_PRODUCT(integer_kind, DTYPE_Q2_0)                                                                 \
    const struct linear_kernels set = {                                                                      \
        .gate_mul = GATE_FUNCTIONS,                                                                          \
        .argmax_add = argmax_add,                                                                            \
        .lora_add_row = lora_add_row,                                                                        \
        .pack = {act_pack_f32, pack_int8, pack_int16},                                                       \
        .of = {[DTYPE_F32] = {product_DTYPE_F32, ACT_F32},                                                   \
               [DTYPE_F16] = {product_DTYPE_F16, ACT_F32},                                                   \
               [DTYPE_BF16] = {product_DTYPE_BF16, ACT_F32},                                                 \
               [DTYPE_Q4_0] = {product_DTYPE_Q4_0, ACT_INT8},                                                \
               [DTYPE_Q4_1] = {product_DTYPE_Q4_1, ACT_INT8},                                                \
               [DTYPE_Q5_0] = {product_DTYPE_Q5_0, ACT_INT8},                                                \
               [DTYPE_Q5_1] = {product_DTYPE_Q5_1, ACT_INT8},                                                \
               [DTYPE_Q8_0] = {product_DTYPE_Q8_0, ACT_INT16},                                               \
               [DTYPE_Q4_K] = {product_DTYPE_Q4_K, ACT_INT8},                                                \
               [DTYPE_Q5_K] = {product_DTYPE_Q5_K, ACT_INT8},                                                \
               [DTYPE_Q6_K] = {product_DTYPE_Q6_K, ACT_INT16},                                               \
               [DTYPE_Q2_K] = {product_DTYPE_Q2_K, ACT_INT8},                                                \
               [DTYPE_Q3_K] = {product_DTYPE_Q3_K, ACT_INT8},                                                \
               [DTYPE_IQ4_NL] = {product_DTYPE_IQ4_NL, ACT_INT8},                                            \
               [DTYPE_IQ4_XS] = {product_DTYPE_IQ4_XS, ACT_INT8},                                            \
               [DTYPE_IQ2_XXS] = {product_DTYPE_IQ2_XXS, ACT_INT8},                                          \
               [DTYPE_IQ2_XS] = {product_DTYPE_IQ2_XS, ACT_INT8},                                            \
               [DTYPE_IQ2_S] = {product_DTYPE_IQ2_S, ACT_INT8},                                              \
               [DTYPE_IQ3_XXS] = {product_DTYPE_IQ3_XXS, ACT_INT8},                                          \
               [DTYPE_IQ3_S] = {product_DTYPE_IQ3_S, ACT_INT8},                                              \
               [DTYPE_IQ1_S] = {product_DTYPE_IQ1_S, ACT_INT8},                                              \
               [DTYPE_IQ1_M] = {product_DTYPE_IQ1_M, ACT_INT8},                                              \
               [DTYPE_TQ1_0] = {product_DTYPE_TQ1_0, ACT_INT8},                                              \
               [DTYPE_TQ2_0] = {product_DTYPE_TQ2_0, ACT_INT8},                                              \
               [DTYPE_Q1_0] = {product_DTYPE_Q1_0, ACT_INT8},                                                \
               [DTYPE_Q2_0] = {product_DTYPE_Q2_0, ACT_INT8},                                                \
               [DTYPE_MXFP4] = {product_DTYPE_MXFP4, ACT_F32},                                               \
               [DTYPE_F8_E4M3] = {product_DTYPE_F8_E4M3, ACT_F32},                                           \
               [DTYPE_I8] = {product_DTYPE_I8, ACT_F32},                                                     \
               [DTYPE_U4] = {product_DTYPE_U4, ACT_F32},                                                     \
               [DTYPE_F4_E2M1] = {product_DTYPE_F4_E2M1, ACT_F32}},                                          \
    }

#endif

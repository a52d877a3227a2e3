/* exp2_constants.h - 2^f for |f| <= 1/2 as 1 + f (C1 + f (C2 + ...)), for every instruction set's exp2.
 *
 * Fitted for the least maximal relative error with the constant term held at 1, so that 2^0 is 1 exactly (the
 * softmax relies on it: rescaling by 2^0 must change nothing). Error of the polynomial 2.0e-9; evaluated in
 * f32 1.0e-7, with fused multiply-adds 7.9e-8.
 *
 * Every exp2 here takes x <= 0, -INFINITY included, gives 0 below 2^-126 (no subnormal numbers: they would
 * slow the sums down and carry nothing) and NaN for NaN. */
#ifndef KERNELS_CPU_EXP2_CONSTANTS_H
#define KERNELS_CPU_EXP2_CONSTANTS_H

#define EXP2_C1 0x1.62e430p-1f
#define EXP2_C2 0x1.ebfbdcp-3f
#define EXP2_C3 0x1.c6aee8p-5f
#define EXP2_C4 0x1.3b2d4cp-7f
#define EXP2_C5 0x1.5f3e54p-10f
#define EXP2_C6 0x1.41fbbcp-13f
#define EXP2_LEAST -126.0f

#endif

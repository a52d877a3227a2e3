/* isa.h - which instruction sets this machine has, chosen at run time.
 *
 * A level means: everything in that level's folder may be executed. Files outside these folders are compiled
 * for the baseline and reach the others through tables of function pointers only.
 *
 *   CPU_ISA_PORTABLE      plain C; everything in f32: the readable reference
 *   CPU_ISA_AVX2          AVX2, FMA, F16C
 *   CPU_ISA_AVX2_VNNI     the same with AVX-VNNI
 *   CPU_ISA_AVX512        AVX-512 F, BW, DQ, VL
 *   CPU_ISA_AVX512_VNNI   the same with VNNI
 *   CPU_ISA_AVX512_AMX    that with AMX: tiles of 8-bit integers
 *
 * A later level is the better one, but does not contain all earlier ones: AVX-512 is older than AVX-VNNI.
 *
 * Detection asks the processor (cpuid) and the operating system (xgetbv: are the registers saved?; AMX's
 * tiles are saved for processes that asked for it, which detection does).
 * Thread: any. */
#ifndef KERNELS_CPU_ISA_H
#define KERNELS_CPU_ISA_H

#include <stdbool.h>

#include "base/status.h"

enum cpu_isa_level {
    CPU_ISA_PORTABLE,
    CPU_ISA_AVX2,
    CPU_ISA_AVX2_VNNI,
    CPU_ISA_AVX512,
    CPU_ISA_AVX512_VNNI,
    CPU_ISA_AVX512_AMX,
    CPU_ISA_COUNT
};

/* Whether this machine can run the level. */
bool cpu_isa_has(enum cpu_isa_level level);

/* The best level that this machine can run. */
enum cpu_isa_level cpu_isa_detect(void);

/* "auto" is the best level; "portable", "avx2", "avxvnni", "avx512", "avx512vnni" and "amx" are themselves.
 * STATUS_UNSUPPORTED when the machine lacks it, STATUS_INVALID for another name. */
int cpu_isa_parse(const char *name, enum cpu_isa_level *level, struct error *err) must_check;

/* The operations other than matrix products that have a version for each level. */
struct cpu_isa {
    const struct attention_kernels *attention; /* attention_kernels.h */
    const struct row_kernels *rows;            /* row_kernels.h */
    const struct delta_kernels *deltas;        /* delta_kernels.h */
};

const struct cpu_isa *cpu_isa_kernels(enum cpu_isa_level level);

/* "AVX-512 VNNI" and the like: for the log. */
const char *cpu_isa_text(enum cpu_isa_level level);

#endif

#include "kernels/cpu/isa.h"

#include <cpuid.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "kernels/cpu/attention_kernels.h"
#include "kernels/cpu/row_kernels.h"

/* What the operating system saves on a context switch: without it the registers may not be used. */
enum { XCR0_AVX = 0x6, XCR0_AVX512 = 0xe6 };

static uint64_t xgetbv(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

static bool has_bits(uint64_t value, uint64_t bits)
{
    return (value & bits) == bits;
}

enum cpu_isa_level cpu_isa_detect(void)
{
    uint32_t a, b, c, d, a7, b7, c7, d7;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !has_bits(c, bit_OSXSAVE | bit_AVX | bit_FMA | bit_F16C))
        return CPU_ISA_PORTABLE;
    uint64_t saved = xgetbv();
    if (!has_bits(saved, XCR0_AVX) || !__get_cpuid_count(7, 0, &a7, &b7, &c7, &d7) || !has_bits(b7, bit_AVX2))
        return CPU_ISA_PORTABLE;
    if (!has_bits(saved, XCR0_AVX512) ||
        !has_bits(b7, bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL))
        return CPU_ISA_AVX2;
    return has_bits(c7, bit_AVX512VNNI) ? CPU_ISA_AVX512_VNNI : CPU_ISA_AVX512;
}

const struct cpu_isa *cpu_isa_kernels(enum cpu_isa_level level)
{
    static const struct cpu_isa portable = {&attention_kernels_portable, &row_kernels_portable};
    static const struct cpu_isa avx2 = {&attention_kernels_avx2, &row_kernels_avx2};
    static const struct cpu_isa avx512 = {&attention_kernels_avx512, &row_kernels_avx512};
    switch (level) {
    case CPU_ISA_PORTABLE:
        return &portable;
    case CPU_ISA_AVX2:
        return &avx2;
    default:
        return &avx512; /* VNNI speeds up matrix products only */
    }
}

const char *cpu_isa_text(enum cpu_isa_level level)
{
    static const char *const texts[] = {"portable", "AVX2", "AVX-512", "AVX-512 VNNI"};
    return texts[level];
}

int cpu_isa_parse(const char *name, enum cpu_isa_level *level, struct error *err)
{
    enum cpu_isa_level best = cpu_isa_detect(), wanted;
    if (strcmp(name, "auto") == 0)
        wanted = best;
    else if (strcmp(name, "portable") == 0)
        wanted = CPU_ISA_PORTABLE;
    else if (strcmp(name, "avx2") == 0)
        wanted = CPU_ISA_AVX2;
    else if (strcmp(name, "avx512") == 0)
        wanted = best > CPU_ISA_AVX512 ? best : CPU_ISA_AVX512;
    else
        return error_set(err, STATUS_INVALID,
                         "no instruction set \"%s\"; --cpu-isa is auto, portable, avx2 or avx512", name);
    if (wanted > best)
        return error_set(err, STATUS_UNSUPPORTED,
                         "this machine has no %s (its best is %s); --cpu-isa selects the instruction set",
                         cpu_isa_text(wanted), cpu_isa_text(best));
    *level = wanted;
    return STATUS_OK;
}

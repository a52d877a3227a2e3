#include "kernels/cpu/isa.h"

#include <cpuid.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kernels/cpu/attention_kernels.h"
#include "kernels/cpu/delta_kernels.h"
#include "kernels/cpu/row_kernels.h"

/* What the operating system saves on a context switch: without it the registers may not be used. */
enum { XCR0_AVX = 0x6, XCR0_AVX512 = 0xe6, XCR0_TILES = 0x60000, XCR0_TILE_DATA_BIT = 18 };

enum { LEAF7_D_AMX = 1 << 24 | 1 << 25, LEAF7_1_A_AVX_VNNI = 1 << 4 }; /* not in every compiler's cpuid.h */

enum { ARCH_REQUEST_PERMISSION = 0x1023 /* ARCH_REQ_XCOMP_PERM */ };

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

/* Registers a, b, c, d of a leaf; zero where the processor has no such leaf. */
struct leaf {
    uint32_t a, b, c, d;
};

static struct leaf read_leaf(uint32_t leaf, uint32_t part)
{
    struct leaf l = {0};
    if (!__get_cpuid_count(leaf, part, &l.a, &l.b, &l.c, &l.d)) return (struct leaf){0};
    return l;
}

/* Linux saves the tiles, 8 KiB, for processes that asked for it; once is enough. */
static bool may_use_tiles(void)
{
    return syscall(SYS_arch_prctl, ARCH_REQUEST_PERMISSION, XCR0_TILE_DATA_BIT) == 0;
}

bool cpu_isa_has(enum cpu_isa_level level)
{
    const struct leaf l1 = read_leaf(1, 0), l7 = read_leaf(7, 0);
    const bool avx2 = has_bits(l1.c, bit_OSXSAVE | bit_AVX | bit_FMA | bit_F16C) &&
                      has_bits(xgetbv(), XCR0_AVX) && has_bits(l7.b, bit_AVX2);
    const bool avx512 = avx2 && has_bits(xgetbv(), XCR0_AVX512) &&
                        has_bits(l7.b, bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL);
    const bool vnni = avx512 && has_bits(l7.c, bit_AVX512VNNI);
    switch (level) {
    case CPU_ISA_AVX2:
        return avx2;
    case CPU_ISA_AVX2_VNNI:
        return avx2 && l7.a >= 1 && has_bits(read_leaf(7, 1).a, LEAF7_1_A_AVX_VNNI);
    case CPU_ISA_AVX512:
        return avx512;
    case CPU_ISA_AVX512_VNNI:
        return vnni;
    case CPU_ISA_AVX512_AMX:
        return vnni && has_bits(l7.d, LEAF7_D_AMX) && has_bits(xgetbv(), XCR0_TILES) && may_use_tiles();
    default:
        return true;
    }
}

enum cpu_isa_level cpu_isa_detect(void)
{
    enum cpu_isa_level level = CPU_ISA_COUNT - 1;
    while (!cpu_isa_has(level)) level--;
    return level;
}

const struct cpu_isa *cpu_isa_kernels(enum cpu_isa_level level)
{
    static const struct cpu_isa portable = {&attention_kernels_portable, &row_kernels_portable,
                                            &delta_kernels_portable};
    static const struct cpu_isa avx2 = {&attention_kernels_avx2, &row_kernels_avx2, &delta_kernels_avx2};
    static const struct cpu_isa avx512 = {&attention_kernels_avx512, &row_kernels_avx512,
                                          &delta_kernels_avx512};
    switch (level) {
    case CPU_ISA_PORTABLE:
        return &portable;
    case CPU_ISA_AVX2:
    case CPU_ISA_AVX2_VNNI:
        return &avx2;
    default:
        return &avx512; /* VNNI and AMX speed up matrix products only */
    }
}

const char *cpu_isa_text(enum cpu_isa_level level)
{
    static const char *const texts[] = {"portable", "AVX2", "AVX-VNNI", "AVX-512", "AVX-512 VNNI", "AMX"};
    return texts[level];
}

int cpu_isa_parse(const char *name, enum cpu_isa_level *level, struct error *err)
{
    static const char *const names[] = {"portable", "avx2", "avxvnni", "avx512", "avx512vnni", "amx"};
    enum cpu_isa_level wanted = 0;
    if (strcmp(name, "auto") == 0) {
        *level = cpu_isa_detect();
        return STATUS_OK;
    }
    while (wanted < CPU_ISA_COUNT && strcmp(name, names[wanted]) != 0) wanted++;
    if (wanted == CPU_ISA_COUNT)
        return error_set(err, STATUS_INVALID,
                         "no instruction set \"%s\"; --cpu-isa is auto, portable, avx2, avxvnni, avx512, "
                         "avx512vnni or amx",
                         name);
    if (!cpu_isa_has(wanted))
        return error_set(err, STATUS_UNSUPPORTED,
                         "this machine has no %s (its best is %s); --cpu-isa selects the instruction set",
                         cpu_isa_text(wanted), cpu_isa_text(cpu_isa_detect()));
    *level = wanted;
    return STATUS_OK;
}

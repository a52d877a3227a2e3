/* bit_set.h - a set of small numbers as bits: bit n % 64 of word n / 64. The words are the caller's; nothing is locked. */
#ifndef FLASHD_BIT_SET_H
#define FLASHD_BIT_SET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Words for the numbers 0 to n - 1. */
static inline size_t bit_set_words(size_t n)
{
    return (n + 63) / 64;
}

static inline bool bit_set_has(const uint64_t *words, size_t n)
{
    return words[n / 64] >> (n % 64) & 1;
}

static inline void bit_set_add(uint64_t *words, size_t n)
{
    words[n / 64] |= (uint64_t)1 << (n % 64);
}

static inline void bit_set_remove(uint64_t *words, size_t n)
{
    words[n / 64] &= ~((uint64_t)1 << (n % 64));
}

/* The first one from n on; num_words * 64: there is none. */
static inline size_t bit_set_next(const uint64_t *words, size_t num_words, size_t n)
{
    size_t word = n / 64;
    uint64_t bits = word < num_words ? words[word] >> (n % 64) << (n % 64) : 0;
    while (bits == 0 && ++word < num_words) bits = words[word];
    return bits ? word * 64 + (size_t)__builtin_ctzll(bits) : num_words * 64;
}

#endif

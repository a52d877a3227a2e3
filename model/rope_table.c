#include "model/rope_table.h"

#include <math.h>

#include "base/check.h"
#include "base/parallel.h"

enum { THREAD_ANGLES_MIN = 1 << 16 }; /* half a millisecond */

/* Low frequencies are stretched by factor, high ones stay, those between are blended. */
static float llama3_frequency(const struct rope_config *r, float frequency)
{
    float wavelength = (float)(2 * M_PI) / frequency;
    float original = (float)r->original_max_position, factor = (float)r->factor;
    float low = (float)r->low_freq_factor, high = (float)r->high_freq_factor;
    if (wavelength <= (float)((double)r->original_max_position / r->high_freq_factor)) return frequency;
    if (wavelength > (float)((double)r->original_max_position / r->low_freq_factor))
        return frequency / factor;
    float smooth = (original / wavelength - low) / (high - low);
    return (1 - smooth) * frequency / factor + smooth * frequency;
}

/* The dimension whose wave turns num_rotations times over the original context. */
static double yarn_correction_dim(const struct rope_config *r, double num_rotations)
{
    return r->rotary_dim * log(r->original_max_position / (num_rotations * 2 * M_PI)) / (2 * log(r->theta));
}

static void yarn_frequencies(const struct rope_config *r, float *frequencies)
{
    double low = yarn_correction_dim(r, r->beta_fast), high = yarn_correction_dim(r, r->beta_slow);
    if (!r->yarn_keep_fractions) {
        low = floor(low);
        high = ceil(high);
    }
    low = max_of(low, 0.0);
    high = min_of(high, r->rotary_dim - 1.0);
    if (low == high) high += 0.001;
    for (int i = 0; i < r->rotary_dim / 2; i++) {
        float ramp = ((float)i - (float)low) / (float)(high - low);
        float keep = 1 - min_of(max_of(ramp, 0.0f), 1.0f);
        float period = 1 / frequencies[i];
        frequencies[i] = 1 / ((float)r->factor * period) * (1 - keep) + 1 / period * keep;
    }
}

void rope_table_frequencies(const struct rope_config *rope, int32_t num_positions, const float *divisors,
                            float *frequencies)
{
    const float *factors =
        num_positions > rope->original_max_position ? rope->long_factors : rope->short_factors;
    int n = rope->rotary_dim / 2;
    assert_debug(n > 0 && rope->rotary_dim % 2 == 0 && rope->theta > 1);
    assert_debug((rope->type != ROPE_LLAMA3 && rope->type != ROPE_YARN) || rope->original_max_position > 0);
    for (int i = 0; i < n; i++) {
        float exponent = (float)(2 * i) / (float)rope->rotary_dim;
        float period = (float)pow((double)(float)rope->theta, (double)exponent);
        frequencies[i] = 1.0f / (rope->type == ROPE_LONGROPE ? factors[i] * period : period);
        if (rope->type == ROPE_LINEAR || rope->type == ROPE_PROPORTIONAL)
            frequencies[i] /= (float)rope->factor;
        if (rope->type == ROPE_LLAMA3) frequencies[i] = llama3_frequency(rope, frequencies[i]);
    }
    if (rope->type == ROPE_YARN) yarn_frequencies(rope, frequencies);
    for (int i = rope->num_turning; rope->type == ROPE_PROPORTIONAL && i < n; i++) frequencies[i] = 0;
    for (int i = 0; divisors && i < n; i++) frequencies[i] /= divisors[i];
    for (int i = 0; rope->turns_back && i < n; i++) frequencies[i] = -frequencies[i];
}

float rope_table_scale(const struct rope_config *rope, int32_t num_positions)
{
    const bool is_short = rope->type == ROPE_LONGROPE && num_positions <= rope->original_max_position;
    if (rope->type != ROPE_YARN && rope->type != ROPE_LONGROPE) return 1;
    return (float)(is_short && rope->short_attention_factor > 0 ? rope->short_attention_factor
                                                                : rope->attention_factor);
}

struct rows {
    const float *frequencies;
    float scale;
    int n; /* frequencies */
    int32_t first_position;
    float *out;
};

static void fill_rows(void *context, int64_t begin, int64_t end)
{
    const struct rows *r = context;
    for (int64_t p = begin; p < end; p++)
        for (int i = 0; i < r->n; i++) {
            float angle =
                (float)(r->first_position + p) * r->frequencies[i]; /* rounded to f32, as in the reference */
            float sine, cosine;
            sincosf(angle, &sine, &cosine);
            r->out[(p * r->n + i) * 2] = cosine * r->scale;
            r->out[(p * r->n + i) * 2 + 1] = sine * r->scale;
        }
}

void rope_table_fill(const struct rope_config *rope, const float *frequencies, float scale,
                     int32_t first_position, int32_t num_positions, float *out)
{
    int n = rope->rotary_dim / 2;
    assert_debug(first_position >= 0 && num_positions <= INT32_MAX - first_position);
    struct rows rows = {
        .frequencies = frequencies, .scale = scale, .n = n, .first_position = first_position, .out = out};
    parallel_ranges(num_positions, max_of(THREAD_ANGLES_MIN / n, 1), fill_rows, &rows);
}

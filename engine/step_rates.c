#include "engine/step_rates.h"

static const double MEMORY_SECONDS = 5.0;

static void add(double *sum_seconds, double *sum_amount, double seconds, double amount)
{
    double keep = MEMORY_SECONDS / (MEMORY_SECONDS + seconds);
    *sum_seconds = *sum_seconds * keep + seconds;
    *sum_amount = *sum_amount * keep + amount;
}

static double quotient(double seconds, double amount)
{
    return amount > 0 ? seconds / amount : 0;
}

void step_rates_add(struct step_rates *r, double seconds, int32_t num_prefill_tokens, int32_t num_decodes)
{
    if (!(seconds > 0) || num_prefill_tokens + num_decodes == 0) return;
    if (num_prefill_tokens == 0) {
        add(&r->decode_seconds, &r->decode_steps, seconds, 1);
        return;
    }
    double decode_part = 0;
    if (num_decodes > 0 && r->decode_steps > 0) {
        decode_part = quotient(r->decode_seconds, r->decode_steps);
    } else if (num_decodes > 0) {
        decode_part = seconds * num_decodes / (num_decodes + num_prefill_tokens);
        add(&r->mixed_decode_seconds, &r->mixed_decode_steps, decode_part, 1);
    }
    double rest = seconds > decode_part ? seconds - decode_part : 0;
    add(&r->prefill_seconds, &r->prefill_tokens, rest, num_prefill_tokens);
}

double step_rates_prefill_seconds_per_token(const struct step_rates *r)
{
    return quotient(r->prefill_seconds, r->prefill_tokens);
}

double step_rates_decode_seconds_per_step(const struct step_rates *r)
{
    if (r->decode_steps > 0) return quotient(r->decode_seconds, r->decode_steps);
    return quotient(r->mixed_decode_seconds, r->mixed_decode_steps);
}

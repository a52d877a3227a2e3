#include "cli/bench_attention.h"

#include <stdlib.h>

#include "cli/command.h"
#include "lab/attention/lab.h"

#define AT(field) offsetof(struct lab_options, field)

const struct flag bench_attention_flags[] = {
    {"device", "cpu|cuda", "what computes [cpu]", FLAG_TEXT, AT(device), 0, 0},
    {"longest", "tokens", "N goes from an eighth of this to this [2048; cuda: 16384]", FLAG_COUNT,
     AT(longest), 64, 65536},
    {"plot", "file", "a picture (SVG) of time and bytes over N, and a roofline", FLAG_TEXT, AT(plot), 0, 0},
    {.name = NULL},
};

int bench_attention_run(int num_args, char **args)
{
    struct lab_options o = {.device = "cpu"};
    struct error err = {0};
    if (flags_load(bench_attention_flags, &o, "bench attention", NULL, num_args, args, &err))
        return command_fail(&err, EXIT_USAGE);
    return lab_run(&o, stdout, &err) ? command_fail(&err, EXIT_FAILURE) : EXIT_SUCCESS;
}

/* help.c - the table as a person reads it: --help, and the example of a YAML file. */
#include <stdio.h>

#include "base/check.h"
#include "config/option_table.h"

static void format_default(const struct option *o, char *out, size_t capacity)
{
    switch (o->type) {
    case OPTION_TEXT:
        snprintf(out, capacity, "%s", o->default_text ? o->default_text : "");
        break;
    case OPTION_INT:
        snprintf(out, capacity, "%lld", (long long)o->default_int);
        break;
    case OPTION_REAL:
        snprintf(out, capacity, "%g", o->default_number);
        break;
    case OPTION_FLAG:
        snprintf(out, capacity, "%s", o->default_int ? "true" : "false");
        break;
    case OPTION_BYTES:
        if (o->default_int && o->default_int % MIB == 0)
            snprintf(out, capacity, "%lldMiB", (long long)(o->default_int / MIB));
        else if (o->default_int && o->default_int % KIB == 0)
            snprintf(out, capacity, "%lldKiB", (long long)(o->default_int / KIB));
        else
            snprintf(out, capacity, "%lld", (long long)o->default_int);
        break;
    default:
        snprintf(out, capacity, "%s", "");
        break;
    }
}

void config_print_help(FILE *out)
{
    fprintf(out, "      --config <file>\n          YAML file of options: name: value\n");
    for (size_t i = 0; i < NUM_OPTIONS; i++) {
        const struct option *o = &options[i];
        if (o->type == OPTION_SECTION) {
            fprintf(out, "\n%s:\n", o->name);
            continue;
        }
        char text[64];
        format_default(o, text, sizeof text);
        if (o->type == OPTION_FLAG)
            fprintf(out, "      --%s, --no-%s\n          %s", o->name, o->name, o->help);
        else
            fprintf(out, "      --%s <%s>%s\n          %s", o->name, o->unit,
                    o->type == OPTION_LIST ? "..." : "", o->help);
        fprintf(out, text[0] ? " [%s]\n" : "%s\n", text);
    }
}

void config_print_example(FILE *out)
{
    fprintf(out,
            "# flashd.example.yaml - every option at its default; made by `flashd --print-example-config`.\n"
            "# Start with `flashd serve --config flashd.yaml`.\n\n#model: /models/model.gguf\n");
    for (size_t i = 0; i < NUM_OPTIONS; i++) {
        const struct option *o = &options[i];
        if (o->type == OPTION_SECTION) {
            fprintf(out, "\n# ---- %s ----\n", o->name);
            continue;
        }
        char text[64];
        format_default(o, text, sizeof text);
        fprintf(out, "\n# %s%s%s%s\n#%s: %s\n", o->help, o->unit[0] ? " (" : "", o->unit,
                o->unit[0] ? ")" : "", o->name, text);
    }
}

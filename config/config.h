/* config.h - every setting of the server, from defaults, then --config FILE, then FLASHD_ environment
 * variables, then the command line; the later wins. One table (options.h) is the source of all of them.
 *
 *   --max-num-seqs 8   --max-num-seqs=8   max-num-seqs: 8 (YAML)   FLASHD_MAX_NUM_SEQS=8
 *
 * A LIST is separated by commas wherever it stands; on the command line also by blanks, in YAML it may be a
 * sequence. A value that is empty, or no text, is an error and never the default: a key that got lost must
 * not open a server. Memory: a config owns its strings; config_deinit frees them. Thread: read-only once
 * loaded. */
#ifndef CONFIG_CONFIG_H
#define CONFIG_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/digest.h"
#include "base/status.h"
#include "config/options.h"
#include "config/text_list.h"

/* What stands behind a key: "KEY name=acme weight=3 max-seqs=8 max-tokens=100000 admin", each optional. */
struct api_key_terms {
    double weight;      /* of its share of the machine, beside other keys */
    int64_t max_seqs;   /* in flight, running and waiting; 0: as many as fit */
    int64_t max_tokens; /* of prompts in flight, not of answers; 0: any */
    char name[32];      /* for logs and messages; "": none */
    bool revoked;       /* it was taken out while the server runs (reload.h): nobody may come with it */
    bool admin;         /* may see and end requests of all keys (/debug/requests) */
    struct digest_text digest; /* of the key, which may be said by it alone ("sha256:...") */
};

struct config {
#define CONFIG_FIELD_TEXT(field) char *field;
#define CONFIG_FIELD_LIST(field) struct text_list field;
#define CONFIG_FIELD_INT(field) int64_t field;
#define CONFIG_FIELD_REAL(field) double field;
#define CONFIG_FIELD_BYTES(field) uint64_t field;
#define CONFIG_FIELD_FLAG(field) bool field;
#define SECTION(title)
#define X(type, field, name, def, min, max, unit, help) CONFIG_FIELD_##type(field)
    OPTION_TABLE(SECTION, X)
#undef X
#undef SECTION
    struct api_key_terms *api_key_terms; /* [api_key.num_items] once loaded; NULL: all as by default */
    char *model;                         /* the positional argument, or `model:` in the file */
    char *model_path;                    /* where it was found; NULL: model is the path */
    struct text_list arguments;          /* a copy of the command line that it was loaded from */
};

/* Everything at its default. Call config_deinit in the end. */
int config_init(struct config *c, struct error *err) must_check;
void config_deinit(struct config *c);

/* Where the model's files are: MODEL itself, or what its name on the hub was found as. */
static inline const char *config_model_path(const struct config *c)
{
    return c->model_path ? c->model_path : c->model;
}

/* The three sources in their order: --config (found in args, else FLASHD_CONFIG), environment (NAME=value
 * strings, usually environ), args; then the keys of --api-key-file. args does not hold the program's or the
 * command's name; of several arguments that may be MODEL or an entry of a LIST, the last is MODEL if none stood
 * before the list. On failure err names the option and the source. */
int config_load(struct config *c, int num_args, char *const *args, char *const *environment,
                struct error *err) must_check;

/* What is held for clients takes an eighth of that memory and a quarter of that at most, and what two bodies become while they are
 * read a sixteenth, unless the options say something else than their defaults. config_load does it with the machine's, or its control group's. */
void config_fit_memory(struct config *c, uint64_t total_bytes);

/* Whether the options go together: each is within its own limits already. config_load does it, too. */
int config_check(const struct config *c, struct error *err) must_check;

/* The file that the command line or the environment names; NULL: none. */
const char *config_find_path(int num_args, char *const *args, char *const *environment);

/* Whether that option may be given several values. */
bool config_is_list(const char *name);

/* Sets one option by its name, as every source does; a LIST is appended to. source is for the message:
 * "--config x.yaml", ... */
int config_set(struct config *c, const char *name, const char *value, const char *source,
               struct error *err) must_check;

void config_print_help(FILE *out);
void config_print_example(FILE *out); /* YAML, every option commented out at its default */

#endif

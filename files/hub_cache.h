/* hub_cache.h - models of the Hugging Face hub that other programs have fetched to this machine, found by their names there.
 *
 * The cache is what huggingface_hub, and with it transformers, vLLM and SGLang, keep: a folder models--ORG--NAME for each, with
 * refs/REVISION (the commit of it) and snapshots/COMMIT. Nothing is fetched and nothing is written. */
#ifndef FILES_HUB_CACHE_H
#define FILES_HUB_CACHE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

enum { HUB_NAME_BYTES = 224, HUB_TAG_BYTES = 96 }; /* with their NULs */

/* ORG/NAME[@REVISION][:QUANT], as Qwen/Qwen3-0.6B and unsloth/Qwen3-0.6B-GGUF:Q4_K_M. */
struct hub_name {
    char model[HUB_NAME_BYTES];   /* ORG/NAME */
    char revision[HUB_TAG_BYTES]; /* a branch, a tag or a commit; main where none is said */
    char quant[HUB_TAG_BYTES];    /* "": none is said */
};

bool hub_name_parse(const char *text, struct hub_name *out);

/* Where the cache is, by the environment: HF_HUB_CACHE, HF_HOME, XDG_CACHE_HOME, HOME. False: none of them says it. */
bool hub_cache_folder(char *folder, size_t capacity);

/* The model's snapshot if that has a config.json and no QUANT is said; otherwise one of its GGUF files: the one whose name ends in QUANT,
 * without it in Q4_K_M, or the first by its name. The caller frees *path. STATUS_NOT_FOUND: the cache has no such model (*path stays NULL
 * and err untouched), or its snapshot no such file (err says which it has). */
int hub_cache_find(const struct hub_name *name, char **path, struct error *err) must_check;

#endif

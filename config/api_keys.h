/* api_keys.h - where client keys come from, and what a key may be. */
#ifndef CONFIG_API_KEYS_H
#define CONFIG_API_KEYS_H

#include "config/config.h"

/* Adds those of --api-key-file to config->api_key and checks all: a key that no client could send, or that is
 * what a template makes of a missing value, is an error that does not show it, and so is a key or a name that
 * stands twice (of the second one could not say what holds). Errors name the file and line. */
int api_keys_load(struct config *config, struct error *err) must_check;

/* Those of a key by its index; -1: of a server without keys. */
struct api_key_terms api_keys_terms(const struct config *config, int key_idx);

/* Gives config the keys of fresh, which is loaded from the same sources at another time (reload.h): old ones keep
 * their places. An error, and nothing has changed, where a server would lose its last key or get its first. */
int api_keys_merge(struct config *config, const struct config *fresh, bool *changed,
                   struct error *err) must_check;

/* NULL: it has none, or there is no key. */
const char *api_keys_name(const struct config *config, int key_idx);

/* Overwrites the keys in the arguments, so that `ps` does not show them. config: what was loaded from them.
 */
void api_keys_hide(const struct config *config, int num_args, char **args);

#endif

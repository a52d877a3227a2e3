/* model_names.h - under which names the model is served (--served-model-name), and its adapters (loras.h).
 *
 * A name that ends in an asterisk stands for all that begin alike, and is listed nowhere; NAME:latest means
 * NAME, as Ollama's clients say it. Thread: the loop's, but for what says any. */
#ifndef SERVER_API_MODEL_NAMES_H
#define SERVER_API_MODEL_NAMES_H

#include "server/server.h"

bool model_name_is_served(const struct server *server, const char *name);
/* It is the model's own, not an adapter's. Any thread. */
bool model_name_is_models(const struct server *server, const char *name);
/* The names that are listed, one after another: *at is 0 at first. NULL: there are no more. */
const char *model_name_next(const struct server *server, int *at);
/* Any thread. */
bool model_name_stands_for(const char *served, const char *name);
bool model_name_is_pattern(const char *name);

#endif

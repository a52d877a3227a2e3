/* model_names.h - under which names the model is served (--served-model-name).
 *
 * A name that ends in an asterisk stands for all that begin alike, and is listed nowhere; NAME:latest means
 * NAME, as Ollama's clients say it. Thread: any. */
#ifndef SERVER_API_MODEL_NAMES_H
#define SERVER_API_MODEL_NAMES_H

#include "server/server.h"

bool model_name_is_served(const struct server *server, const char *name);
/* The adapter that has this name, from 1 on; 0: none has. */
int model_name_lora(const struct server *server, const char *name);
const char *model_name_of_lora(const struct server *server, int lora);
bool model_name_is_pattern(const char *name);

#endif

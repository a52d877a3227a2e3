/* loras.h - the adapters that are served beside the model: those of --lora-modules, and those that come and go while the server runs.
 *
 *   free --loras_add--> COMING --the engine has it--> THERE --loras_remove--> LEAVING --its last request has ended--> EMPTYING --> free
 *                          `------it refuses------> free      `--its files are others when an engine is started--> LEAVING, lost
 *
 * Each has a place (config/lora_modules.h), by which the engine knows it. The link says which folder is in each, so that an engine that is
 * started again has what the one before it had; another process that takes over is told by a variable of its environment. One order is with
 * the engine at a time (link.h).
 *
 * Threads: what there is changes on the loop's alone. Any thread may take one by its name; until it is let go of it is where it was,
 * under that name, and the engine has it. */
#ifndef SERVER_API_LORAS_H
#define SERVER_API_LORAS_H

#include "base/digest.h"
#include "server/api/api_error.h"
#include "server/server.h"

struct loras;

/* What is known of one before the engine has it. Texts are copied. */
struct lora_source {
    const char *name, *path;
    struct digest_text files; /* identity.h */
    struct digest_text
        identity; /* of the weights with it (text/model_identity.h), where answers have receipts */
};

/* Those of config, to which those are added that the process before this one had taken in. The link is there and no engine yet. */
int loras_create(struct server *server, struct config *config, struct error *err) must_check;
void loras_destroy(struct loras *l);

/* ---- any thread; l NULL: there are none ---- */

/* The place of the one with this name; 0: there is none. */
int loras_take(struct loras *l, const char *name);
/* place 0: nothing was taken. */
void loras_let_go(struct loras *l, int place);

/* ---- the loop's; a place whose adapter is taken, or there ---- */

int loras_num_places(const struct loras *l); /* l NULL: 0 */
/* Requests may ask for it. */
bool loras_is_there(const struct loras *l, int place);
/* No engine has it any more: nothing may be computed with it. */
bool loras_is_lost(const struct loras *l, int place);
static inline void loras_refuse_lost(struct api_error *err)
{
    api_error_set(
        err, 500, "server_error", NULL, NULL,
        "the files of this adapter were replaced, or cannot be read, and nothing can be computed with it "
        "any more");
}
int loras_find(const struct loras *l, const char *name); /* as loras_take, without taking it */
/* One that is there, or comes, has this name, or one that stands for it. */
bool loras_has_name(const struct loras *l, const char *name);
const char *loras_name(const struct loras *l, int place);
const char *loras_path(const struct loras *l, int place);
const char *loras_files(const struct loras *l, int place); /* a digest */
const char *loras_identity(const struct loras *l, int place);
void loras_set_identity(struct loras *l, int place, const struct digest_text *identity);
/* Of all that are there, by name and files: in which order does not count. */
struct digest_text loras_digest(const struct loras *l);

/* done is called once, later: status 0, or text says why not. False: there is no place, or no memory. */
typedef void loras_done(void *context, int status, const char *text);
bool loras_add(struct loras *l, const struct lora_source *source, loras_done *done, void *context) must_check;
/* No request finds it any more; those that have it end as they would have. */
void loras_remove(struct loras *l, int place);
/* Requests that have it. */
int loras_num_users(struct loras *l, int place);

/* The engine has answered, or may be asked. */
void loras_pump(struct loras *l);
/* Another engine is about to be started: those of which it would read other files are lost, and their requests fail. */
void loras_look_at_files(struct loras *l);
/* The server ends: whoever waits for one is told. */
void loras_give_up(struct loras *l, const char *text);

/* For the process that takes over: those that came while this one ran. STATUS_NO_MEMORY. */
int loras_append_environment(const struct loras *l, struct text_list *environment) must_check;

#endif

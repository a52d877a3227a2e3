/* life.h - the process's life: listen, load, serve, drain, end.
 *
 *   LOADING --loaded--> READY --SIGTERM--> LAME_DUCK --delay--> DRAINING --quiet or timed out--> exit 0
 *      |                  `--device failed--> FAILED --quiet or 3 s--> exit 70
 *      `--failed--> exit 1
 *
 * A file for each of its parts: server.c begins and releases, load.c gets texts and model ready, engine.c is there when the engine
 * wakes the loop, dies or is stuck, signals.c hears what the operator wants, upgrade.c gives the place to another process,
 * end.c drains and ends.
 *
 * It listens before it loads, so that health checks and clients get an answer (503) at once. A lame duck says
 * no to health checks and takes requests as before, until whoever balances has seen it (--drain-delay); SIGINT,
 * SIGQUIT, or SIGTERM again, leaves that out. Draining takes no new API requests, but health, metrics and refusals are
 * still answered; it ends when nothing is in flight, at once if nothing is. A signal while it drains cuts off
 * what runs and ends the process on the spot. SIGHUP reads the configuration again, SIGUSR1 tells the log what
 * is in flight, SIGUSR2 lets another process take this one's place (upgrade.h); other signals are logged and ignored.
 *
 * Thread: the loop's, but for what life.text_thread fills in. */
#ifndef SERVER_LIFE_LIFE_H
#define SERVER_LIFE_LIFE_H

#include "config/lora_modules.h"
#include "server/handover.h"
#include "server/identity.h"
#include "server/inherited.h"
#include "server/listener.h"
#include "server/recovery.h"
#include "server/server.h"
#include "server/service_manager.h"
#include "server/takeover.h"
#include "server/upgrade.h"
#include "text/fim_tokens.h"
#include "text/model_text.h"

enum { EXIT_DEVICE = 70, LIFE_ENDING_SIGNALS = 3, LIFE_OTHER_SIGNALS = 9 };

struct life {
    struct config *config; /* the server's, where it may be changed */
    struct server server;
    struct listener listener;
    struct engine_host engine;
    struct recovery recovery;
    struct service_manager manager;
    struct inherited inherited;
    struct upgrade upgrade;
    struct handover handover; /* to the process after this one, */
    struct takeover takeover; /* from the one before */
    struct identity_files files;
    uint8_t own_identity[IDENTITY_BYTES];
    uv_loop_t loop;
    uv_async_t text_done, quiet;
    uv_signal_t endings[LIFE_ENDING_SIGNALS], others[LIFE_OTHER_SIGNALS];
    uv_signal_t child_ended; /* a container's first process listens for it */
    uv_timer_t deadline, restart, engine_watch;
    uv_prepare_t before_wait;
    struct model_text text;
    struct fim_tokens fim; /* the tokenizer's */
    uv_thread_t text_thread;
    bool loading_text; /* text_thread runs */
    bool has_text;
    struct model_identity identity;                       /* the text thread's; where answers have receipts */
    struct digest_text lora_identities[LORA_MODULES_MAX]; /* likewise, of those of the options */
    int text_status;
    double text_seconds;
    struct error text_error;
    bool knows_engine;     /* one has served: the link is joined, and a death is no failed start */
    bool engine_was_stuck; /* and was killed for it */
    struct metric *engine_deaths;
    char **model_names; /* the server's */
    bool last_words;    /* everything was aborted; only flushing is left */
    bool ending;
    int exit_code;
};

/* Each file's own handles and callbacks, before the loop runs. */
void life_end_init(struct life *life);
void life_load_init(struct life *life);
void life_engine_init(struct life *life, engine_main *engine);
void life_signals_init(struct life *life);
void life_upgrade_init(struct life *life);
/* Signals are heard until the loop is closed. */
void life_signals_close(struct life *life);

/* ---- load.c ---- */

/* Texts on a thread, the model by the engine. */
int life_start_load(struct life *life, struct error *err) must_check;
/* Once both are there; called as often as one might be. */
void life_become_ready(struct life *life);
/* With the adapters that are there now. */
void life_make_identity(struct life *life);

/* ---- upgrade.c ---- */

void life_begin_upgrade(struct life *life);

/* ---- end.c ---- */

void life_on_quiet(void *context); /* the listener's: a connection has nothing to do any more */
void life_end_if_quiet(struct life *life);
void life_retire(struct life *life);      /* a lame duck first, where somebody watches */
void life_begin_drain(struct life *life); /* at once */
void life_end(struct life *life);
void life_leave(const struct life *life); /* the process ends here, without waiting for anybody but the log */
void life_refuse_to_start(struct life *life, const char *why);
void life_fail_device(struct life *life, const char *why);

#endif

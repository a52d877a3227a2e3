/* load.c - two things are loaded side by side: the texts (tokenizer, template) on a thread, the model by the engine.
 *
 * A load cannot be interrupted; a process told to end meanwhile leaves it running and exits under it. */
#include "server/life/life.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "server/api/api.h"
#include "server/api/loras.h"
#include "server/loop_watch.h"
#include "server/masks.h"
#include "server/reranker.h"
#include "text/answer_header.h"

/* Random weights may have no files at all. */
static void read_identity(struct life *life)
{
    const struct config *config = life->server.config;
    int status = model_identity_read(config_model_path(config), &life->identity, &life->text_error);
    for (int i = 1; i <= config->lora_modules.num_items && !status; i++)
        status = model_identity_read_lora(lora_module_path(config, i), &life->identity.weights,
                                          &life->lora_identities[i - 1], &life->text_error);
    if (status && !life->text_status) life->text_status = status;
}

static void text_main(void *context)
{
    struct life *life = context;
    const struct config *config = life->server.config;
    uint64_t begin_ns = clock_monotonic_ns();
    life->text_status =
        model_text_open(config_model_path(config), config->chat_template, &life->text, &life->text_error);
    if (life->server.makes_receipts && life->text_status != STATUS_NO_MEMORY) read_identity(life);
    life->text_seconds = (double)(clock_monotonic_ns() - begin_ns) / 1e9;
    uv_async_send(&life->text_done);
}

/* Random weights need no tokenizer; and one must not have more ids than the model has rows. */
static int fit_tokenizer(struct life *life, const struct link_facts *facts, struct error *err)
{
    const struct config *config = life->server.config;
    if (!life->text.tokenizer) {
        log_info(
            "random weights without a tokenizer.json: bytes are the tokens of a prompt, words are made up");
        int status = tokenizer_open_plain(facts->vocab_size, &life->text.tokenizer, err);
        return status ? status : model_text_derive_tools(&life->text, err);
    }
    if (tokenizer_vocab_size(life->text.tokenizer) <= facts->vocab_size) return 0;
    return error_set(
        err, STATUS_INVALID, "%s: the tokenizer has ids up to %d, but the model has %d rows of logits",
        config_model_path(config), tokenizer_vocab_size(life->text.tokenizer) - 1, facts->vocab_size);
}

/* The engine's phases, and beside them the texts'. */
static void tell_phases(struct life *life)
{
    static const char *const names[LOAD_PHASES + 1] = {
        [LOAD_FILES] = "files",  [LOAD_DEVICE] = "device", [LOAD_WEIGHTS] = "weights",
        [LOAD_POOL] = "kv_pool", [LOAD_ENGINE] = "engine", [LOAD_PHASES] = "tokenizer"};
    double seconds[LOAD_PHASES + 1];
    memcpy(seconds, link_phase_seconds(life->server.link), LOAD_PHASES * sizeof *seconds);
    seconds[LOAD_PHASES] = life->text_seconds;
    api_on_loaded(&life->server, names, seconds, LOAD_PHASES + 1);
}

/* Without one an engine computes all of a prompt as prompts are computed. */
static void set_answer_header(const struct life *life, struct link *link)
{
    int32_t ids[ANSWER_HEADER_MAX];
    if (!life->server.config->share_answers) return;
    link_set_answer_header(link, ids, answer_header_find(&life->text, ids, ANSWER_HEADER_MAX));
}

void life_make_identity(struct life *life)
{
    const struct server *server = &life->server;
    const struct digest_text adapters = loras_digest(server->loras);
    identity_make(server->config, &life->files, server->facts, server->model_names[0], &adapters,
                  life->own_identity);
}

static int publish_model(struct life *life, struct error *err)
{
    struct server *server = &life->server;
    struct link *link = server->link;
    int status = fit_tokenizer(life, link_facts(link), err);
    if (!status) status = grammars_create(life->text.tokenizer, link_facts(link), &server->grammars, err);
    if (!status)
        status =
            reranker_open(server->config, link_facts(link), life->text.tokenizer, &server->reranker, err);
    if (!status) status = masks_create(link, server->grammars, &server->masks, err);
    if (status) return status;
    link_set_text(link, tokenizer_eos_id(life->text.tokenizer));
    set_answer_header(life, link);
    server->facts = link_facts(link);
    server->slots = link_slots(link);
    server->tokenizer = life->text.tokenizer;
    server->chat_template = life->text.chat_template;
    server->tool_format = life->text.tool_format;
    fim_tokens_find(life->text.tokenizer, life->text.gguf, &life->fim);
    server->fim = &life->fim;
    server->identity = life->identity;
    for (int i = 1; i <= server->config->lora_modules.num_items; i++)
        loras_set_identity(server->loras, i, &life->lora_identities[i - 1]);
    server->files_digest = digest_of(life->files.digest, sizeof life->files.digest);
    server->files_bytes = life->files.num_bytes;
    life_make_identity(life);
    tell_phases(life);
    return 0;
}

/* Once both are there. */
void life_become_ready(struct life *life)
{
    struct error err = {0};
    if (life->server.state != SERVER_LOADING || !life->has_text || !life->knows_engine) return;
    if (publish_model(life, &err)) {
        life_refuse_to_start(life, err.text);
        return;
    }
    if (listener_accept(&life->listener, &err)) {
        life_refuse_to_start(life, err.text);
        return;
    }
    life->server.state = SERVER_READY;
    log_info("ready after %.3f s: serving %s", (double)(clock_monotonic_ns() - life->server.start_ns) / 1e9,
             life->server.model_names[0]);
    takeover_begin(&life->takeover, &life->listener, inherited_take_told_fd(&life->inherited),
                   life->own_identity);
    service_manager_tell_ready(&life->manager);
}

static void on_text_done(uv_async_t *async)
{
    loop_watch_enter("the end of loading");
    struct life *life = async->data;
    uv_thread_join(&life->text_thread);
    life->loading_text = false;
    if (life->server.state != SERVER_LOADING) return; /* told to end meanwhile */
    bool may_lack = !strcmp(life->server.config->load_format, "dummy");
    life->has_text = life->text_status == 0 || (life->text_status == STATUS_NOT_FOUND && may_lack);
    if (life->has_text)
        life_become_ready(life);
    else
        life_refuse_to_start(life, life->text_error.text);
}

int life_start_load(struct life *life, struct error *err)
{
    identity_look_at_files(life->server.config, &life->files);
    int uv_status = uv_thread_create(&life->text_thread, text_main, life);
    if (uv_status) return error_set(err, STATUS_IO, "cannot start a thread: %s", uv_strerror(uv_status));
    life->loading_text = true;
    life->server.engine_start_ns = clock_monotonic_ns();
    return engine_host_start(&life->engine, err);
}

void life_load_init(struct life *life)
{
    uv_async_init(&life->loop, &life->text_done, on_text_done);
    life->text_done.data = life;
}

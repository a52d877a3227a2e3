/* server.c - the process begins, and what is left of it is let go (life/life.h says what lies between). */
#include "server/server.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/log_writer.h"
#include "base/metrics.h"
#include "server/api/api.h"
#include "server/api/loras.h"
#include "server/http_metrics.h"
#include "server/journal.h"
#include "server/life/life.h"
#include "server/loop_slice.h"
#include "server/masks.h"
#include "server/process_metrics.h"
#include "server/reranker.h"
#include "server/span_export.h"

/* The last part of a path of n bytes. */
static char *last_name(const char *path, size_t n)
{
    while (n > 1 && path[n - 1] == '/') n--;
    const char *slash = memrchr(path, '/', n > 0 ? n - 1 : 0);
    const char *name = slash ? slash + 1 : path;
    return strndup(name, n - (size_t)(name - path));
}

/* A name of n bytes. */
static int add_model_name(struct life *life, const char *name, size_t n, struct error *err)
{
    struct server *server = &life->server;
    char *own = strndup(name, n);
    char **names =
        own ? realloc(life->model_names, ((size_t)server->num_model_names + 1) * sizeof *names) : NULL;
    if (!names) {
        free(own);
        return error_set(err, STATUS_NO_MEMORY, "out of memory");
    }
    names[server->num_model_names++] = own;
    life->model_names = names;
    server->model_names = (const char *const *)names;
    return STATUS_OK;
}

/* What was found by its name on the hub is called so, without what chooses a revision or a file there, and by the last part alone. */
static int add_default_names(struct life *life, struct error *err)
{
    const struct config *config = life->server.config;
    const bool is_hub_name = config->model_path && strcmp(config->model_path, config->model) != 0;
    const size_t num_bytes = is_hub_name ? strcspn(config->model, "@:") : strlen(config->model);
    char *last = last_name(config->model, num_bytes);
    if (!last) return error_set(err, STATUS_NO_MEMORY, "out of memory");
    int status = is_hub_name ? add_model_name(life, config->model, num_bytes, err) : STATUS_OK;
    if (!status) status = add_model_name(life, last, strlen(last), err);
    free(last);
    return status;
}

static int choose_model_names(struct life *life, struct error *err)
{
    const struct text_list *names = &life->server.config->served_model_name;
    int status = STATUS_OK;
    if (names->num_items > 0 && names->items[0][strlen(names->items[0]) - 1] == '*')
        return error_set(err, STATUS_INVALID,
                         "--served-model-name: the first name is the one in answers; it must not end in *");
    for (int i = 0; i < names->num_items && !status; i++)
        status = add_model_name(life, names->items[i], strlen(names->items[i]), err);
    if (names->num_items == 0) status = add_default_names(life, err);
    return status;
}

/* The front's and the engine's. */
static double num_log_lines_dropped(const void *context)
{
    const struct server *server = context;
    struct link_stats stats = {0};
    if (server->link) link_stats(server->link, &stats);
    return (double)(log_writer_num_dropped() + stats.num_log_lines_dropped);
}

static double num_spans_sent(const void *context)
{
    const struct server *server = context;
    return (double)span_export_num_sent(server->spans);
}

static double num_spans_dropped(const void *context)
{
    const struct server *server = context;
    return (double)span_export_num_dropped(server->spans);
}

static int start_spans(struct server *server, struct error *err)
{
    if (!server->config->otlp_endpoint) return STATUS_OK;
    int status = span_export_create(server->config->otlp_endpoint, &server->spans, err);
    if (status) return status;
    metric_register_read(METRIC_COUNTER, "flashd_spans_sent_total", "Spans that the collector took.",
                         num_spans_sent, server);
    metric_register_read(METRIC_COUNTER, "flashd_spans_dropped_total",
                         "Spans that it did not take, or that there was no room for.", num_spans_dropped,
                         server);
    return STATUS_OK;
}

static double num_lines_kept(const void *context)
{
    const struct server *server = context;
    return (double)journal_num_written(server->journal);
}

static double num_lines_dropped(const void *context)
{
    const struct server *server = context;
    return (double)journal_num_dropped(server->journal);
}

/* replaces: who has the journal's file hands its place over to this process. */
static int start_journal(struct server *server, bool replaces, struct error *err)
{
    enum { HEAD_BYTES = 4096 }; /* of a line, before the body of a request */
    const struct config *config = server->config;
    if (!config->journal) return STATUS_OK;
    int status = journal_create(config->journal, config->journal_bytes, config->max_body_bytes + HEAD_BYTES,
                                replaces, &server->journal, err);
    if (status) return status;
    metric_register_read(METRIC_COUNTER, "flashd_journal_lines_total",
                         "Lines that --journal holds, or held: two a request.", num_lines_kept, server);
    metric_register_read(METRIC_COUNTER, "flashd_journal_lines_dropped_total",
                         "Lines that it lacks: the disk was full, or too slow.", num_lines_dropped, server);
    return STATUS_OK;
}

static int start(struct life *life, struct error *err)
{
    struct server *server = &life->server;
    int status = choose_model_names(life, err);
    if (!status) status = link_create(&server->link, err);
    life->engine.link = server->link;
    if (!status) status = loras_create(server, life->config, err);
    if (!status) status = api_init(server, err);
    if (status) return status;
    http_metrics_register(server_routes, server->config);
    process_metrics_register(&life->engine);
    life->engine_deaths = metric_register(METRIC_COUNTER, "flashd_engine_deaths_total",
                                          "Engines that died and were replaced.", "", NULL, 0);
    metric_register_read(METRIC_COUNTER, "flashd_log_lines_dropped_total",
                         "Log lines that nobody will see: their reader was too slow, or the disk was full.",
                         num_log_lines_dropped, server);
    status = start_spans(server, err);
    if (!status) status = inherited_take(&life->inherited, err);
    if (!status) status = start_journal(server, life->inherited.told_fd >= 0, err);
    if (!status) status = listener_open(&life->listener, server, server_routes, err);
    life->listener.on_quiet = life_on_quiet;
    life->listener.quiet_context = life;
    if (status) return status;
    log_info("listening on %s", life->listener.address);
    return life_start_load(life, err);
}

/* A process may have died before it had. */
static void finish_what_is_left(struct life *life)
{
    struct link *link = life->server.link;
    if (life->engine.main) return;
    link_reset(link);
    for (int32_t i = -1; (i = link_next_waiting(link, i)) >= 0;)
        link_finish_waiting(link, i, FINISH_CANCELLED, NULL);
}

/* The engine goes first: it finishes what is left, so that the API can let go of it. */
static void release(struct life *life)
{
    engine_host_join(&life->engine);
    if (life->server.facts) {
        finish_what_is_left(life);
        api_on_engine_wake(&life->server);
    }
    if (life->server.api) api_deinit(&life->server);
    loras_destroy(life->server.loras);
    span_export_destroy(life->server.spans);
    journal_destroy(life->server.journal);
    masks_destroy(life->server.masks);
    grammars_destroy(life->server.grammars);
    rerank_template_close(life->server.reranker);
    recovery_deinit(&life->recovery);
    link_destroy(life->server.link);
    life->server.link = NULL;
    model_text_close(&life->text);
    listener_deinit(&life->listener);
    service_manager_deinit(&life->manager);
    inherited_deinit(&life->inherited);
    for (int i = 0; i < life->server.num_model_names; i++) free(life->model_names[i]);
    free(life->model_names);
    life_signals_close(life);
    uv_run(&life->loop, UV_RUN_NOWAIT);
    uv_loop_close(&life->loop);
    metrics_reset();
    free(life);
}

int server_run(struct config *config, engine_main *engine)
{
    struct life *life = calloc(1, sizeof *life);
    if (!life || uv_loop_init(&life->loop)) {
        log_error("out of memory");
        free(life);
        return EXIT_FAILURE;
    }
    life->config = config;
    life->server = (struct server){.loop = &life->loop,
                                   .config = config,
                                   .makes_receipts = config->receipts || config->journal,
                                   .start_ns = clock_monotonic_ns(),
                                   .engine_is_down = true,
                                   .created = (int64_t)(clock_wall_ns() / 1000000000)};
    life_end_init(life);
    life_load_init(life);
    life_engine_init(life, engine);
    service_manager_init(&life->manager, &life->loop);
    life_signals_init(life);
    life_upgrade_init(life);
    loop_slice_shorten();
    struct error err = {0};
    if (start(life, &err)) {
        log_error("%s", err.text);
        life->exit_code = EXIT_FAILURE;
        life_end(life);
    }
    uv_run(&life->loop, UV_RUN_DEFAULT);
    int exit_code = life->exit_code;
    bool engine_loads = life->server.link && link_state(life->server.link) == LINK_LOADING;
    if (life->loading_text || engine_loads || exit_code == EXIT_DEVICE)
        life_leave(life); /* no thread to wait for */
    release(life);
    log_info("ended with code %d", exit_code);
    return exit_code;
}

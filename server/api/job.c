#include "server/api/job.h"

#include <stdlib.h>
#include <string.h>

#include "server/api/api.h"
#include "server/api/loras.h"
#include "server/api/prepare.h"
#include "server/api/tenant.h"
#include "server/loop_watch.h"
#include "text/json_numbers.h"

/* As a generation reads it: numbers as they were written. */
static int run_with_body(struct job *job)
{
    cJSON *body = prepare_parse(job->text, job->text_bytes, &job->error);
    int status = STATUS_INVALID;
    if (body && json_keep_numbers(body, job->text, job->text_bytes))
        status = api_error_no_memory(&job->error);
    else if (body)
        status = job->run(job, body);
    cJSON_Delete(body);
    return status;
}

static void run_job(struct pool_work *work)
{
    struct job *job = (struct job *)work;
    job->status = job->has_body ? run_with_body(job) : job->run(job, NULL);
    if (job->status == 0 && buffer_failed(&job->answer)) job->status = api_error_no_memory(&job->error);
    if (job->has_body) pool_work_note_bytes(work, job->text_bytes);
}

static void free_job(struct job *job)
{
    job->server->api->num_jobs--;
    loras_pump(job->server->loras); /* it may have had one */
    buffer_deinit(&job->answer);
    free(job->body);
    free(job);
}

void job_end(struct job *job)
{
    struct exchange *x = job->x;
    if (x && job->status < 0)
        api_error_send(x, &job->error);
    else if (x)
        exchange_reply_json(x, &job->answer);
    free_job(job);
}

static void end_job(struct pool_work *work, bool has_run)
{
    struct job *job = (struct job *)work;
    loop_watch_enter(job->name);
    if (!has_run) job->status = api_error_no_memory(&job->error);
    if (job->status == 0 && job->then && job->then(job)) return;
    job_end(job);
}

/* With a copy of the body, as the exchange may go. */
static bool begin_job(struct pool_work *work)
{
    struct job *job = (struct job *)work;
    if (!job->has_body) return true;
    job->body = malloc(job->text_bytes + 1);
    if (!job->body) return false;
    memcpy(job->body, job->text, job->text_bytes + 1);
    job->text = job->body;
    return true;
}

static void on_closed(struct exchange *x)
{
    struct job *job = x->context;
    job->x = NULL;
    if (work_queue_take_back(&job->work)) free_job(job);
}

void job_abort_waiting(struct server *server, const struct api_error *error)
{
    for (struct pool_work *w = server->works.first, *next; w; w = next) {
        next = w->next;
        if (w->done != end_job) continue;
        struct job *job = (struct job *)w;
        (void)work_queue_take_back(w);
        api_error_send(job->x, error);
        free_job(job);
    }
}

void *job_create(struct exchange *x, size_t num_bytes, size_t answer_bytes_max)
{
    struct job *job = calloc(1, num_bytes);
    if (!job) {
        exchange_error(x, 500, "server_error", NULL, NULL, 0, "out of memory");
        return NULL;
    }
    job->x = x;
    job->server = x->server;
    job->api_key_idx = x->api_key_idx;
    job->text = x->body;
    job->text_bytes = x->body_bytes;
    buffer_init(&job->answer, answer_bytes_max);
    return job;
}

void job_start(struct job *job, bool is_long)
{
    struct exchange *x = job->x;
    job->work = (struct pool_work){.begin = begin_job,
                                   .run = run_job,
                                   .done = end_job,
                                   .is_long = is_long,
                                   .api_key_idx = x->api_key_idx,
                                   .tenant = tenant_read(x)};
    x->server->api->num_jobs++;
    x->context = job;
    x->on_closed = on_closed;
    if (!work_queue_put(&x->server->works, x->server->loop, &job->work)) end_job(&job->work, false);
}

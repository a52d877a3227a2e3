/* endpoint_loras.c - POST /v1/load_lora_adapter and /v1/unload_lora_adapter, as vLLM has them: adapters come and go while the server runs
 * (loras.h). A worker finds the folder, which is in that of --lora-dir whatever a client says, and reads the weights once, so that they are in
 * memory when the engine takes them in. */
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "config/lora_modules.h"
#include "server/api/job.h"
#include "server/api/json_field.h"
#include "server/api/loras.h"
#include "server/api/model_names.h"
#include "server/identity.h"

enum { REPLY_BYTES_MAX = 4096, READ_BYTES = 64 << 10 };

struct lora_job {
    struct job job; /* first */
    struct digest_text files, identity;
    char name[LORA_NAME_BYTES], path[PATH_MAX];
    size_t root_bytes; /* of path: the folder that all are in, of which clients learn nothing */
};

/* ---- on a worker ---- */

static int read_text(cJSON *body, const char *field, const char **out, struct api_error *err)
{
    const cJSON *value = json_field_find(body, field);
    if (!cJSON_IsString(value)) return json_field_refuse_type(value, field, "a string", err);
    *out = value->valuestring;
    for (const char *c = *out; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            return api_error_invalid(err, "invalid_value", field, "%s has a control character", field);
    return 0;
}

static int read_name(struct lora_job *j, cJSON *body)
{
    const char *name = "";
    int status = read_text(body, "lora_name", &name, &j->job.error);
    if (status < 0) return status;
    const size_t n = strlen(name);
    if (n == 0 || n >= sizeof j->name || name[n - 1] == '*' || strchr(name, '='))
        return api_error_invalid(&j->job.error, "invalid_value", "lora_name",
                                 "lora_name has 1 to %d bytes, none of them =, and does not end in *",
                                 (int)sizeof j->name - 1);
    memcpy(j->name, name, n + 1);
    return 0;
}

/* Links are followed first. */
static bool is_inside(const char *path, const char *root, size_t root_bytes)
{
    return !strncmp(path, root, root_bytes) && path[root_bytes] == '/';
}

/* A path that does not begin with a slash begins in the folder. */
static int find_folder(struct lora_job *j, cJSON *body)
{
    struct api_error *err = &j->job.error;
    char root[PATH_MAX], said[PATH_MAX];
    const char *path = "", *lora_dir = j->job.server->config->lora_dir;
    int status = read_text(body, "lora_path", &path, err);
    if (status < 0) return status;
    if (!realpath(lora_dir, root))
        return api_error_set(err, 500, "server_error", NULL, NULL, "the folder of --lora-dir cannot be read");
    const char *from = path[0] == '/' ? "" : root;
    const int n = snprintf(said, sizeof said, "%s%s%s", from, from[0] ? "/" : "", path);
    j->root_bytes = strlen(root);
    if (n < (int)sizeof said && realpath(said, j->path) && is_inside(j->path, root, j->root_bytes)) return 0;
    return api_error_invalid(err, "invalid_value", "lora_path",
                             "\"%.160s\" is no folder in the one that --lora-dir names", path);
}

/* A disk may be slow, or far away. */
static void read_weights(const struct lora_job *j)
{
    char path[PATH_MAX + 32], bytes[READ_BYTES];
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", j->path);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && read(fd, bytes, sizeof bytes) > 0) continue;
    if (fd >= 0) close(fd);
}

static int read_identity(struct lora_job *j)
{
    const struct server *server = j->job.server;
    struct error why = {0};
    if (!server->makes_receipts) return 0;
    if (!model_identity_read_lora(j->path, &server->identity.weights, &j->identity, &why)) return 0;
    return api_error_invalid(&j->job.error, "invalid_value", "lora_path", "the adapter cannot be read");
}

static int run_load(struct job *job, cJSON *body)
{
    struct lora_job *j = (struct lora_job *)job;
    int status = read_name(j, body);
    if (status == 0) status = find_folder(j, body);
    if (status < 0) return status;
    j->files = identity_of_adapter(j->path);
    read_weights(j);
    return read_identity(j);
}

static int run_unload(struct job *job, cJSON *body)
{
    return read_name((struct lora_job *)job, body);
}

/* ---- on the loop ---- */

static void say_success(struct lora_job *j, const char *what)
{
    struct buffer text;
    buffer_init(&text, REPLY_BYTES_MAX);
    buffer_printf(&text, "Success: LoRA adapter '%s' %s successfully.", j->name, what);
    buffer_append_text(&j->job.answer, "{\"message\":");
    buffer_append_json(&j->job.answer, text.data, text.num_bytes);
    buffer_append_char(&j->job.answer, '}');
    if (buffer_failed(&text) || buffer_failed(&j->job.answer))
        j->job.status = api_error_no_memory(&j->job.error);
    buffer_deinit(&text);
}

/* The engine has it, or says why not, in a sentence that may begin with a path. */
static void on_loaded(void *context, int status, const char *text)
{
    struct lora_job *j = context;
    const bool has_path = is_inside(text, j->path, j->root_bytes);
    if (status == STATUS_DEVICE || status == STATUS_NO_MEMORY)
        j->job.status = api_error_set(&j->job.error, 503, "service_unavailable_error", NULL, NULL,
                                      "the adapter is not loaded: %s", text);
    else if (status)
        j->job.status =
            api_error_invalid(&j->job.error, "invalid_value", "lora_path", "the adapter is not loaded: %s",
                              has_path ? text + j->root_bytes + 1 : text);
    else
        say_success(j, "added");
    if (j->job.error.http_status == 503) j->job.error.retry_after_seconds = 1;
    job_end(&j->job);
}

static int check_name(struct lora_job *j)
{
    const struct server *server = j->job.server;
    for (int i = 0; i < server->num_model_names; i++)
        if (!strcmp(server->model_names[i], j->name))
            return api_error_invalid(&j->job.error, "invalid_value", "lora_name",
                                     "\"%s\" is the model's own name", j->name);
    if (loras_has_name(server->loras, j->name))
        return api_error_invalid(&j->job.error, "invalid_value", "lora_name",
                                 "The lora adapter '%s' has already been loaded: unload it first", j->name);
    return 0;
}

static bool begin_load(struct job *job)
{
    struct lora_job *j = (struct lora_job *)job;
    const struct lora_source source = {j->name, j->path, j->files, j->identity};
    job->status = check_name(j);
    if (job->status < 0) return false;
    if (loras_add(job->server->loras, &source, on_loaded, j)) return true;
    job->status = api_error_invalid(&job->error, "invalid_value", NULL,
                                    "all %d places for adapters are taken (--max-loras), some perhaps until "
                                    "requests that have them have ended: unload one",
                                    loras_num_places(job->server->loras));
    return false;
}

static bool unload(struct job *job)
{
    struct lora_job *j = (struct lora_job *)job;
    struct loras *loras = job->server->loras;
    const int place = loras_find(loras, j->name);
    if (place == 0) {
        job->status = api_error_set(&job->error, 404, "invalid_request_error", "model_not_found", "lora_name",
                                    "The lora adapter '%s' cannot be found.", j->name);
        return false;
    }
    log_info("adapter %s leaves: %d requests still have it", loras_name(loras, place),
             loras_num_users(loras, place));
    loras_remove(loras, place);
    say_success(j, "removed");
    return false;
}

static void start(struct exchange *x, const char *name, int (*run)(struct job *job, cJSON *body),
                  bool (*then)(struct job *job))
{
    if (!x->server->config->lora_dir) {
        exchange_error(x, 403, "invalid_request_error", "admin_only", NULL, 0,
                       "adapters are loaded and unloaded while the server runs where its option --lora-dir "
                       "names the folder that they are in; those that there are (GET /v1/models) are asked "
                       "for by their names, as model");
        return;
    }
    if (x->server->is_replaced) {
        exchange_error(x, 503, "service_unavailable_error", NULL, NULL, 1,
                       "another process is about to take this one's place, with the adapters that there are");
        return;
    }
    struct job *job = job_create(x, sizeof(struct lora_job), REPLY_BYTES_MAX);
    if (!job) return;
    job->name = name;
    job->run = run;
    job->then = then;
    job->has_body = true;
    job_start(job, then == begin_load);
}

void endpoint_load_lora(struct exchange *x)
{
    start(x, "an adapter that comes", run_load, begin_load);
}

void endpoint_unload_lora(struct exchange *x)
{
    start(x, "an adapter that leaves", run_unload, unload);
}

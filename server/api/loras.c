#include "server/api/loras.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"
#include "config/lora_modules.h"
#include "server/api/api.h"
#include "server/api/model_names.h"
#include "server/api/request_metrics.h"
#include "server/identity.h"

_Static_assert((int)LORA_MODULES_MAX == (int)LORA_PLACES_MAX, "a place for each");

/* NAME=PATH lines. */
#define LORAS_VARIABLE "FLASHD_UPGRADE_ADAPTERS"

enum { ENVIRONMENT_BYTES_MAX = 1 << 20 };

enum lora_state { LORA_FREE, LORA_COMING, LORA_THERE, LORA_LEAVING, LORA_EMPTYING };

struct lora {
    enum lora_state state;
    char name[LORA_NAME_BYTES];
    char *path;
    struct digest_text files, identity;
    int num_users;
    bool came_later, is_lost; /* is_lost: its files are others by now, and no engine has it */
    loras_done *done;         /* NULL: nobody waits */
    void *context;
};

struct loras {
    struct server *server;
    pthread_mutex_t mutex;                 /* of names, states and users */
    int num_places, num_unsettled;         /* those that are neither free nor there */
    int ordered;                           /* the place that the engine is asked for; 0: none */
    struct lora all[LORA_MODULES_MAX + 1]; /* by place, from 1 on */
};

/* ---- any thread ---- */

static int find(const struct loras *l, const char *name)
{
    for (int i = 1; i <= l->num_places; i++)
        if (l->all[i].state == LORA_THERE && model_name_stands_for(l->all[i].name, name)) return i;
    return 0;
}

int loras_take(struct loras *l, const char *name)
{
    if (!l || l->num_places == 0) return 0;
    pthread_mutex_lock(&l->mutex);
    const int place = find(l, name);
    if (place) l->all[place].num_users++;
    pthread_mutex_unlock(&l->mutex);
    return place;
}

void loras_let_go(struct loras *l, int place)
{
    if (place == 0) return;
    pthread_mutex_lock(&l->mutex);
    assert_always(l->all[place].num_users > 0);
    l->all[place].num_users--;
    pthread_mutex_unlock(&l->mutex);
}

/* ---- what there is ---- */

int loras_num_places(const struct loras *l)
{
    return l ? l->num_places : 0;
}

bool loras_is_there(const struct loras *l, int place)
{
    return l->all[place].state == LORA_THERE;
}

bool loras_is_lost(const struct loras *l, int place)
{
    return l->all[place].is_lost;
}

int loras_find(const struct loras *l, const char *name)
{
    return l ? find(l, name) : 0;
}

bool loras_has_name(const struct loras *l, const char *name)
{
    for (int i = 1; i <= l->num_places; i++)
        if ((l->all[i].state == LORA_COMING || l->all[i].state == LORA_THERE) &&
            model_name_stands_for(l->all[i].name, name))
            return true;
    return false;
}

const char *loras_name(const struct loras *l, int place)
{
    return l->all[place].name;
}

const char *loras_path(const struct loras *l, int place)
{
    return l->all[place].path;
}

const char *loras_files(const struct loras *l, int place)
{
    return l->all[place].files.text;
}

const char *loras_identity(const struct loras *l, int place)
{
    return l->all[place].identity.text;
}

void loras_set_identity(struct loras *l, int place, const struct digest_text *identity)
{
    l->all[place].identity = *identity;
}

int loras_num_users(struct loras *l, int place)
{
    pthread_mutex_lock(&l->mutex);
    const int num = l->all[place].num_users;
    pthread_mutex_unlock(&l->mutex);
    return num;
}

static const struct lora *next_by_name(const struct loras *l, const struct lora *before)
{
    const struct lora *next = NULL;
    for (int i = 1; i <= l->num_places; i++) {
        const struct lora *one = &l->all[i];
        if (one->state == LORA_THERE && (!before || strcmp(one->name, before->name) > 0) &&
            (!next || strcmp(one->name, next->name) < 0))
            next = one;
    }
    return next;
}

struct digest_text loras_digest(const struct loras *l)
{
    struct sha256_ctx hash;
    sha256_init(&hash);
    for (const struct lora *one = NULL; (one = next_by_name(l, one));) {
        digest_add_text(&hash, one->name);
        digest_add_text(&hash, one->files.text);
    }
    return digest_end(&hash);
}

/* ---- changes ---- */

static void set_state(struct loras *l, int place, enum lora_state state)
{
    static const bool is_unsettled[] = {[LORA_COMING] = true, [LORA_LEAVING] = true, [LORA_EMPTYING] = true};
    struct lora *one = &l->all[place];
    pthread_mutex_lock(&l->mutex);
    l->num_unsettled += is_unsettled[state] - is_unsettled[one->state];
    one->state = state;
    pthread_mutex_unlock(&l->mutex);
    if (l->server->facts) request_metrics_tell_loras(l->server);
}

static void free_place(struct loras *l, int place)
{
    struct lora *one = &l->all[place];
    link_tell_lora(l->server->link, place, "");
    set_state(l, place, LORA_FREE);
    free(one->path);
    one->path = NULL;
}

/* One that is free. False: no memory. */
static bool fill_place(struct loras *l, int place, const struct lora_source *source)
{
    struct lora *one = &l->all[place];
    one->path = strdup(source->path);
    if (!one->path) return false;
    snprintf(one->name, sizeof one->name, "%s", source->name);
    one->files = source->files;
    one->identity = source->identity;
    one->is_lost = false;
    return true;
}

bool loras_add(struct loras *l, const struct lora_source *source, loras_done *done, void *context)
{
    int place = 1;
    loras_pump(l);
    while (place <= l->num_places && l->all[place].state != LORA_FREE) place++;
    if (place > l->num_places || !fill_place(l, place, source)) return false;
    l->all[place].came_later = true;
    l->all[place].done = done;
    l->all[place].context = context;
    set_state(l, place, LORA_COMING);
    loras_pump(l);
    return true;
}

void loras_remove(struct loras *l, int place)
{
    assert_always(l->all[place].state == LORA_THERE);
    set_state(l, place, LORA_LEAVING);
    loras_pump(l);
}

/* Last of all: whoever is told may look for more to do here. */
static void tell_done(struct lora *one, int status, const char *text)
{
    loras_done *done = one->done;
    one->done = NULL;
    if (done) done(one->context, status, text);
}

void loras_give_up(struct loras *l, const char *text)
{
    for (int i = 1; i <= loras_num_places(l); i++) tell_done(&l->all[i], STATUS_DEVICE, text);
}

/* ---- orders ---- */

/* Its files may have been replaced while they were read. */
static bool is_unchanged(const struct lora *one)
{
    const struct digest_text now = identity_of_adapter(one->path);
    return !strcmp(now.text, one->files.text);
}

static void welcome(struct loras *l, int place)
{
    struct lora *one = &l->all[place];
    if (!is_unchanged(one)) {
        set_state(l, place, LORA_LEAVING);
        tell_done(one, STATUS_INVALID, "its files were changed while they were read");
        return;
    }
    set_state(l, place, LORA_THERE);
    log_info("adapter %s is there: %s", one->name, one->path);
    tell_done(one, STATUS_OK, "");
}

static void hear_answer(struct loras *l)
{
    const int place = l->ordered;
    struct lora *one = &l->all[place];
    const char *text;
    int status;
    if (place == 0 || !link_hear_lora(l->server->link, &status, &text)) return;
    l->ordered = 0;
    if (one->state == LORA_COMING && !status) {
        welcome(l, place);
        return;
    }
    if (one->state == LORA_COMING)
        log_warning("adapter %s is not there: %s", one->name, text);
    else
        log_info("adapter %s has left its place", one->name);
    free_place(l, place);
    tell_done(one, status, text);
}

/* What is told while an engine loads would be loaded with the rest, and be its end if it is no adapter. */
static bool may_order(const struct loras *l)
{
    const struct server *server = l->server;
    return l->ordered == 0 && !server->engine_is_down && link_state(server->link) == LINK_READY;
}

static void order(struct loras *l, int place, const char *path)
{
    link_tell_lora(l->server->link, place, path);
    link_order_lora(l->server->link, place);
    l->ordered = place;
}

void loras_pump(struct loras *l)
{
    if (!l || l->num_unsettled == 0) return;
    hear_answer(l);
    for (int i = 1; i <= l->num_places && may_order(l); i++) {
        struct lora *one = &l->all[i];
        if (one->state == LORA_LEAVING && loras_num_users(l, i) == 0) {
            set_state(l, i, LORA_EMPTYING);
            order(l, i, "");
        } else if (one->state == LORA_COMING) {
            order(l, i, one->path);
        }
    }
}

void loras_look_at_files(struct loras *l)
{
    for (int i = 1; i <= loras_num_places(l); i++) {
        struct lora *one = &l->all[i];
        if ((one->state != LORA_THERE && one->state != LORA_LEAVING) || one->is_lost || is_unchanged(one))
            continue;
        log_error(
            "the files of adapter %s are others by now, or cannot be read: it is not there any more, and "
            "requests that have it fail",
            one->name);
        link_tell_lora(l->server->link, i, "");
        one->is_lost = true;
        set_state(l, i, LORA_LEAVING);
        api_abort_lora(l->server, i);
    }
}

/* ---- the beginning and the end ---- */

static bool has_module(const struct config *config, const char *line, size_t name_bytes)
{
    for (int i = 0; i < config->lora_modules.num_items; i++)
        if (!strncmp(config->lora_modules.items[i], line, name_bytes + 1)) return true;
    return false;
}

/* Lines of the process before this one, but for names that the options have. */
static int inherit(struct config *config, struct error *err)
{
    const char *line = getenv(LORAS_VARIABLE);
    int status = STATUS_OK;
    for (size_t n; line && *line && config->lora_dir && !status; line += n + (line[n] == '\n')) {
        n = strcspn(line, "\n");
        if (!has_module(config, line, strcspn(line, "=")))
            status = text_list_append(&config->lora_modules, line, n);
    }
    unsetenv(LORAS_VARIABLE);
    return status ? error_set(err, status, "out of memory") : lora_modules_check(config, err);
}

static int add_module(struct loras *l, int place, struct error *err)
{
    const struct server *server = l->server;
    const char *path = lora_module_path(server->config, place);
    char name[LORA_NAME_BYTES];
    lora_module_name(server->config, place, name);
    for (int i = 0; i < server->num_model_names; i++)
        if (!strcmp(server->model_names[i], name))
            return error_set(err, STATUS_INVALID, "--lora-modules: \"%s\" is the model's own name", name);
    const struct lora_source source = {.name = name, .path = path, .files = identity_of_adapter(path)};
    if (!fill_place(l, place, &source)) return error_set(err, STATUS_NO_MEMORY, "out of memory");
    if (strlen(path) >= LORA_PATH_BYTES)
        return error_set(err, STATUS_INVALID, "--lora-modules: the path of \"%s\" is too long", name);
    link_tell_lora(server->link, place, path);
    set_state(l, place, LORA_THERE);
    return STATUS_OK;
}

static int check_folder(const struct config *config, struct error *err)
{
    DIR *folder = config->lora_dir ? opendir(config->lora_dir) : NULL;
    if (config->lora_dir && !folder)
        return error_set(err, STATUS_INVALID, "--lora-dir %s: %s", config->lora_dir, strerror(errno));
    if (folder) closedir(folder);
    return STATUS_OK;
}

int loras_create(struct server *server, struct config *config, struct error *err)
{
    const int num_said = config->lora_modules.num_items;
    struct loras *l = calloc(1, sizeof *l);
    if (!l) return error_set(err, STATUS_NO_MEMORY, "out of memory");
    pthread_mutex_init(&l->mutex, NULL);
    l->server = server;
    server->loras = l;
    int status = check_folder(config, err);
    if (!status) status = inherit(config, err);
    l->num_places = lora_modules_num_places(config);
    for (int i = 1; i <= config->lora_modules.num_items && !status; i++) {
        status = add_module(l, i, err);
        l->all[i].came_later = i > num_said;
    }
    return status;
}

void loras_destroy(struct loras *l)
{
    if (!l) return;
    for (int i = 1; i <= LORA_MODULES_MAX; i++) free(l->all[i].path);
    pthread_mutex_destroy(&l->mutex);
    free(l);
}

int loras_append_environment(const struct loras *l, struct text_list *environment)
{
    struct buffer lines;
    int num = 0, status = STATUS_OK;
    buffer_init(&lines, ENVIRONMENT_BYTES_MAX);
    buffer_append_text(&lines, LORAS_VARIABLE "=");
    for (int i = 1; i <= l->num_places; i++) {
        const struct lora *one = &l->all[i];
        if (one->state != LORA_THERE || !one->came_later) continue;
        buffer_printf(&lines, "%s%s=%s", num++ > 0 ? "\n" : "", one->name, one->path);
    }
    if (buffer_failed(&lines))
        status = STATUS_NO_MEMORY;
    else if (num > 0)
        status = text_list_append(environment, lines.data, lines.num_bytes);
    buffer_deinit(&lines);
    return status;
}

#include "server/identity.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/digest.h"
#include "server/fingerprint.h"

static void add_stat(struct sha256_ctx *hash, const char *name, const struct stat *st)
{
    digest_add_text(hash, name);
    digest_add_int(hash, (int64_t)st->st_dev);
    digest_add_int(hash, (int64_t)st->st_ino);
    digest_add_int(hash, st->st_size);
    digest_add_int(hash, st->st_mtim.tv_sec);
    digest_add_int(hash, st->st_mtim.tv_nsec);
}

/* One that is not there is none. Returns its bytes. */
static int64_t add_file(struct sha256_ctx *hash, const char *path)
{
    struct stat st;
    if (!path || stat(path, &st)) return 0;
    add_stat(hash, path, &st);
    return S_ISREG(st.st_mode) ? st.st_size : 0;
}

/* Of a model that is split into NAME-00001-of-0000N.gguf and so on, all behind the first. */
static int64_t add_parts(struct sha256_ctx *hash, const char *path)
{
    static const char first[] = "-00001-of-00000.gguf";
    char part[4096];
    size_t n = path ? strlen(path) : 0;
    int num_parts = 0;
    int64_t num_bytes = 0;
    if (n < sizeof first || n >= sizeof part) return 0;
    n -= sizeof first - 1;
    if (sscanf(path + n, "-00001-of-%5d.gguf", &num_parts) != 1) return 0;
    for (int i = 2; i <= num_parts; i++) {
        snprintf(part, sizeof part, "%.*s-%05d-of-%05d.gguf", (int)n, path, i, num_parts);
        num_bytes += add_file(hash, part);
    }
    return num_bytes;
}

static bool is_engines(const char *name)
{
    const char *end = strrchr(name, '.');
    return end && (!strcmp(end, ".safetensors") || !strcmp(end, ".json"));
}

enum folder_part { ALL_FILES, ENGINES_FILES, READABLE_FILES /* of the engine's */ };

static bool is_in(enum folder_part part, DIR *folder, const char *name)
{
    return part == ALL_FILES ||
           (is_engines(name) && (part == ENGINES_FILES || !faccessat(dirfd(folder), name, R_OK, AT_EACCESS)));
}

/* In whatever order they are listed: their digests are summed. Returns their bytes. */
static int64_t add_folder(struct sha256_ctx *hash, DIR *folder, enum folder_part part)
{
    uint8_t sum[IDENTITY_BYTES] = {0}, one[IDENTITY_BYTES];
    const struct dirent *entry;
    int64_t num_bytes = 0;
    while ((entry = readdir(folder))) {
        struct sha256_ctx of_file;
        struct stat st;
        if (entry->d_name[0] == '.' || fstatat(dirfd(folder), entry->d_name, &st, 0)) continue;
        if (!is_in(part, folder, entry->d_name)) continue;
        if (S_ISREG(st.st_mode)) num_bytes += st.st_size;
        sha256_init(&of_file);
        add_stat(&of_file, entry->d_name, &st);
        sha256_digest(&of_file, sizeof one, one);
        for (size_t i = 0; i < sizeof sum; i++) sum[i] = (uint8_t)(sum[i] + one[i]);
    }
    digest_add_bytes(hash, sum, sizeof sum);
    return num_bytes;
}

struct digest_text identity_of_adapter(const char *path)
{
    DIR *folder = opendir(path);
    struct sha256_ctx hash;
    sha256_init(&hash);
    if (folder) add_folder(&hash, folder, READABLE_FILES);
    if (folder) closedir(folder);
    return digest_end(&hash);
}

/* Returns the model's bytes. A folder's own times say nothing of what an engine reads there. */
static int64_t look_at(const struct config *config, bool engines_alone, uint8_t digest[IDENTITY_BYTES])
{
    struct sha256_ctx hash;
    const char *model = config_model_path(config);
    DIR *folder = model ? opendir(model) : NULL;
    int64_t num_bytes = 0;
    sha256_init(&hash);
    if (!folder || !engines_alone) num_bytes = add_file(&hash, model);
    if (!folder) num_bytes += add_parts(&hash, model);
    if (!engines_alone) add_file(&hash, config->chat_template);
    if (folder) {
        num_bytes = add_folder(&hash, folder, engines_alone ? ENGINES_FILES : ALL_FILES);
        closedir(folder);
    }
    sha256_digest(&hash, IDENTITY_BYTES, digest);
    return num_bytes;
}

void identity_look_at_files(const struct config *config, struct identity_files *out)
{
    out->num_bytes = look_at(config, false, out->digest);
    look_at(config, true, out->engines);
}

bool identity_engine_may_go_on(const struct config *config, const struct identity_files *before)
{
    struct identity_files now;
    identity_look_at_files(config, &now);
    return now.num_bytes == 0 || !memcmp(now.engines, before->engines, sizeof now.engines);
}

static void add_options(struct sha256_ctx *hash, const struct config *c)
{
    const char *const texts[] = {c->load_format, c->generation_config, c->kv_cache_dtype, c->cpu_isa,
                                 c->cuda_path};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        digest_add_text(hash, texts[i] ? texts[i] : "");
    digest_add_int(hash, c->separate_reasoning);
    digest_add_int(hash, c->report_cached_tokens);
    digest_add_int(hash, c->report_energy);
    digest_add_int(hash, c->completions_parse_special);
    digest_add_int(hash, c->share_answers);
}

void identity_make(const struct config *config, const struct identity_files *files,
                   const struct link_facts *facts, const char *model_name, const struct digest_text *adapters,
                   uint8_t out[IDENTITY_BYTES])
{
    struct buffer program;
    struct sha256_ctx hash;
    buffer_init(&program, 2 * LINK_TEXT_BYTES);
    fingerprint_append(&program, facts->device);
    sha256_init(&hash);
    digest_add_bytes(&hash, program.data, program.num_bytes);
    digest_add_bytes(&hash, files->digest, sizeof files->digest);
    digest_add_text(&hash, facts->family);
    digest_add_int(&hash, facts->vocab_size);
    digest_add_int(&hash, facts->max_model_len);
    digest_add_text(&hash, model_name);
    digest_add_text(&hash, adapters->text);
    add_options(&hash, config);
    sha256_digest(&hash, IDENTITY_BYTES, out);
    buffer_deinit(&program);
}

#include "config/api_keys.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <strings.h>

enum { FILE_BYTES_MAX = 64 << 10, KEY_BYTES_MAX = 512 };

static int check_key(const char *key, int number, struct error *err)
{
    size_t n = strlen(key);
    bool visible = n > 0 && n <= KEY_BYTES_MAX;
    for (size_t i = 0; i < n && visible; i++) visible = key[i] > ' ' && key[i] <= '~' && key[i] != ',';
    if (!visible)
        return error_set(err, STATUS_INVALID,
                         "api-key: key %d must be 1 to %d visible ASCII characters without blanks and commas",
                         number, KEY_BYTES_MAX);
    if (!strcasecmp(key, "null"))
        return error_set(err, STATUS_INVALID,
                         "api-key: key %d is \"%s\", as if it had been left out by mistake", number, key);
    return STATUS_OK;
}

static int read_text(const char *path, char text[FILE_BYTES_MAX + 1], struct error *err)
{
    FILE *file = fopen(path, "rb");
    text[0] = '\0';
    if (!file) return error_set(err, STATUS_IO, "--api-key-file %s: %s", path, strerror(errno));
    size_t n = fread(text, 1, FILE_BYTES_MAX + 1, file);
    int problem = ferror(file) ? errno : 0;
    fclose(file);
    if (problem) return error_set(err, STATUS_IO, "--api-key-file %s: %s", path, strerror(problem));
    if (n > FILE_BYTES_MAX)
        return error_set(err, STATUS_LIMIT, "--api-key-file %s: more than %d bytes", path, FILE_BYTES_MAX);
    text[n] = '\0';
    if (strlen(text) != n) return error_set(err, STATUS_INVALID, "--api-key-file %s: not a text", path);
    return STATUS_OK;
}

static int read_file(struct config *config, struct error *err)
{
    char text[FILE_BYTES_MAX + 1];
    const char *path = config->api_key_file;
    int status = read_text(path, text, err), num_before = config->api_key.num_items;
    if (status) return status;
    for (const char *line = text; *line;) {
        size_t n = strcspn(line, "\r\n");
        if (n > 0 && text_list_append(&config->api_key, line, n))
            return error_set(err, STATUS_NO_MEMORY, "out of memory");
        line += n + strspn(line + n, "\r\n");
    }
    if (config->api_key.num_items == num_before)
        return error_set(err, STATUS_INVALID, "--api-key-file %s: there is no key in it", path);
    return STATUS_OK;
}

int api_keys_load(struct config *config, struct error *err)
{
    int status = config->api_key_file ? read_file(config, err) : STATUS_OK;
    for (int i = 0; i < config->api_key.num_items && !status; i++)
        status = check_key(config->api_key.items[i], i + 1, err);
    return status;
}

static void hide(char *text)
{
    memset(text, 'x', strlen(text));
}

void api_keys_hide(const struct config *config, int num_args, char **args)
{
    static const char name[] = "--api-key";
    bool is_key = false;
    for (int i = 0; i < num_args; i++) {
        if (!strncmp(args[i], "--api-key=", sizeof name)) hide(args[i] + sizeof name);
        if (!strncmp(args[i], "--", 2))
            is_key = !strcmp(args[i], name);
        else if (is_key && !(config->model && !strcmp(args[i], config->model)))
            hide(args[i]);
    }
}

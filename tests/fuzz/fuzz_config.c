/* The three sources of options: config.yaml, args and environment (lines), in the form of memory_files.h.
 * What is taken is inside each option's range; what is refused has a sentence. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/utf8.h"
#include "config/api_keys.h"
#include "config/config.h"
#include "fuzz/memory_files.h"
#include "files/file_map.h"

enum { LINES_MAX = 64 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The lines of a file, NULL-terminated; they point into *text. */
static int read_lines(const char *path, char **text, char *lines[LINES_MAX + 1])
{
    size_t n;
    int count = 0;
    *text = NULL;
    if (file_read_text(path, 1 << 20, text, &n, NULL) == 0)
        for (char *line = strtok(*text, "\n"); line && count < LINES_MAX; line = strtok(NULL, "\n"))
            lines[count++] = line;
    lines[count] = NULL;
    return count;
}

/* Neither empty nor a steering of terminals. */
static void check_text(const char *text)
{
    size_t n = strlen(text);
    assert_always(n > 0 && utf8_is_valid((const unsigned char *)text, n));
    for (size_t i = 0; i < n; i++) assert_always((unsigned char)text[i] >= ' ' && text[i] != 0x7F);
}

#define IN_RANGE_TEXT(field, min, max)                                                                       \
    if (c->field) check_text(c->field);
#define IN_RANGE_LIST(field, min, max)                                                                       \
    for (int i = 0; i < c->field.num_items; i++) check_text(c->field.items[i]);
#define IN_RANGE_FLAG(field, min, max)
#define IN_RANGE_INT(field, min, max) assert_always(c->field >= (min) && c->field <= (max));
#define IN_RANGE_REAL(field, min, max) assert_always(c->field >= (min) && c->field <= (max));
#define IN_RANGE_BYTES(field, min, max)                                                                      \
    assert_always(c->field >= (uint64_t)(min) && c->field <= (uint64_t)(max));

static void check_ranges(const struct config *c)
{
#define SECTION(title)
#define X(type, field, name, def, min, max, unit, help) IN_RANGE_##type(field, min, max)
    OPTION_TABLE(SECTION, X)
#undef X
#undef SECTION
}

/* Each could be sent in a header. */
static void check_keys(const struct config *c)
{
    for (int i = 0; i < c->api_key.num_items; i++)
        for (const char *p = c->api_key.items[i]; *p; p++) assert_always(*p > ' ' && *p <= '~' && *p != ',');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct config c;
    struct error err = {0};
    char *arg_text, *environment_text, *args[LINES_MAX + 1], *environment[LINES_MAX + 1];
    memory_files_add("args", "", 0, 0); /* so that there is a file, and the disk is not looked at */
    memory_files_add_parts(data, size);
    int num_args = read_lines(MEMORY_DIRECTORY "/args", &arg_text, args);
    read_lines(MEMORY_DIRECTORY "/environment", &environment_text, environment);
    assert_always(config_init(&c, &err) == 0);
    if (config_load(&c, num_args, args, environment, &err) != 0) {
        assert_always(err.text[0]);
    } else {
        check_ranges(&c);
        check_keys(&c);
    }
    api_keys_hide(&c, num_args, args);
    config_deinit(&c);
    free(arg_text);
    free(environment_text);
    memory_files_clear();
    return 0;
}

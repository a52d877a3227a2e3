/* The three sources of options: config.yaml, args and environment (lines), in the form of memory_files.h.
 * What is taken is inside each option's range; what is refused has a sentence. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
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

#define IN_RANGE_TEXT(field, min, max)
#define IN_RANGE_LIST(field, min, max)                                                                       \
    for (int i = 0; i < c->field.num_items; i++) assert_always(c->field.items[i]);
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
    if (config_load(&c, num_args, args, environment, &err) != 0) assert_always(err.text[0]);
    check_ranges(&c);
    config_deinit(&c);
    free(arg_text);
    free(environment_text);
    memory_files_clear();
    return 0;
}

/* A chat template and, behind a NUL, the JSON object that it is rendered with. What comes out is valid UTF-8,
 * the same each time, and its untrusted ranges are ascending, disjoint and inside it. */
#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz/check_decoding.h"
#include "text/chat_template.h"
#include "server/api/json_gate.h"
#include "text/json_numbers.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const trusted[] = {"bos_token", "eos_token", NULL};
static const char default_context[] =
    "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi <b> \xC3\xA9\"},{\"role\":\"assistant\",\"content\":"
    "[{\"type\":\"text\",\"text\":\"x\"}],\"n\":1.0}],\"add_generation_prompt\":true,\"bos_token\":\"<s>\","
    "\"tools\":null}";

/* As the server does: nothing reaches a template that has not passed the gate. */
static cJSON *read_context(const char *text, size_t n)
{
    static const struct json_gate_limits limits = {.max_depth = 64, .max_nodes = 10000, .max_keys = 4096};
    if (n == 0 || json_gate_check(text, n, &limits, NULL) != 0) {
        text = default_context;
        n = sizeof default_context - 1;
    }
    cJSON *context = cJSON_ParseWithLength(text, n);
    assert_always(context);
    assert_always(json_keep_numbers(context, text, n) == 0);
    return context;
}

static int render(const struct chat_template *t, const cJSON *context, struct buffer *out)
{
    static const struct chat_template_limits limits = {
        .num_steps = 50000, .output_bytes = 1 << 18, .depth = 600, .memory_bytes = 16 << 20};
    struct text_range *untrusted;
    int num_untrusted;
    struct error err = {0};
    buffer_init(out, 1 << 20);
    int status =
        chat_template_render(t, context, trusted, 1700000000, &limits, out, &untrusted, &num_untrusted, &err);
    assert_always(status == 0 || err.text[0]);
    for (int i = 0; i < num_untrusted; i++) {
        assert_always(untrusted[i].begin < untrusted[i].end && untrusted[i].end <= out->num_bytes);
        if (i > 0) assert_always(untrusted[i - 1].end <= untrusted[i].begin);
    }
    if (status == 0) assert_always(is_valid_text(out->data, out->num_bytes));
    free(untrusted);
    return status;
}

static void render_twice(const struct chat_template *t, const cJSON *context)
{
    struct buffer first, second;
    int status = render(t, context, &first), again = render(t, context, &second);
    assert_always(status == again && first.num_bytes == second.num_bytes);
    assert_always(first.num_bytes == 0 || !memcmp(first.data, second.data, first.num_bytes));
    buffer_deinit(&first);
    buffer_deinit(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct chat_template *t = NULL;
    struct error err = {0};
    char *source = malloc(size + 1);
    memcpy(source, data, size);
    source[size] = '\0';
    size_t n = strlen(source);
    if (chat_template_parse(source, &t, &err) == 0) {
        cJSON *context = n < size ? read_context(source + n + 1, size - n - 1) : read_context("", 0);
        (void)chat_template_wants_parts(t);
        render_twice(t, context);
        cJSON_Delete(context);
        chat_template_free(t);
    } else {
        assert_always(err.text[0]);
    }
    free(source);
    return 0;
}

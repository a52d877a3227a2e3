/* grammar_main.c - JSON schemas for the comparison with reference implementations (test_grammar.py).
 *
 * Each line of standard input is {"schema": text, "texts": [text], "samples": n, "seed": n}; each line of
 * output is
 * {"accepted": [bool], "samples": [text]} or {"status", "error"}. A sample is a random walk over the bytes
 * that the grammar allows, to its end; walks that find none within SAMPLE_BYTES_MAX are left out. */
#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/rng.h"
#include "text/grammar/grammar.h"
#include "text/grammar/matcher.h"

enum { SAMPLE_BYTES_MAX = 600, HURRY_BYTES = 80 };

static bool accepts(const struct grammar *g, const char *text)
{
    struct matcher *m;
    assert_always(matcher_new(g, &m) == 0);
    bool ok = matcher_accept(m, text, strlen(text)) == 0 && matcher_can_end(m);
    matcher_free(m);
    return ok;
}

static int allowed_bytes(struct matcher *m, uint8_t out[256])
{
    int n = 0;
    for (int byte = 0; byte < 256; byte++) {
        char c = (char)byte;
        if (matcher_accept(m, &c, 1)) continue;
        assert_always(matcher_rollback(m, 1) == 0);
        out[n++] = (uint8_t)byte;
    }
    return n;
}

/* Letters rather than the other bytes of a string, and what closes something once the text is long. */
static uint8_t choose(const uint8_t *bytes, int n, size_t length, uint32_t random)
{
    uint8_t liked[256];
    int num_liked = 0;
    for (int i = 0; i < n; i++)
        if (strchr(length > HURRY_BYTES ? "\"}]:" : "\"}]:{[,0123456789-.aeinost", bytes[i]) && bytes[i])
            liked[num_liked++] = bytes[i];
    bool likes = num_liked > 0 && (random >> 28) != 0;
    return likes ? liked[random % (uint32_t)num_liked] : bytes[random % (uint32_t)n];
}

static bool sample(const struct grammar *g, uint64_t seed, char *out)
{
    struct matcher *m;
    uint8_t bytes[256];
    bool ended = false;
    size_t length = 0;
    assert_always(matcher_new(g, &m) == 0);
    while (length < SAMPLE_BYTES_MAX && !ended) {
        uint32_t random = rng_philox(seed, length, 0).word[0];
        int n = allowed_bytes(m, bytes);
        if (n == 0 || (matcher_can_end(m) && random % 3 == 0)) {
            ended = true;
            if (!matcher_can_end(m)) out[length++] = '?'; /* a dead end shows as a text that is not valid */
        } else {
            out[length] = (char)choose(bytes, n, length, random);
            assert_always(matcher_accept(m, &out[length], 1) == 0);
            length++;
        }
    }
    matcher_free(m);
    out[length] = '\0';
    return ended;
}

static void run(const cJSON *line, cJSON *answer)
{
    const struct grammar_options options = {.max_spaces = GRAMMAR_SPACES_DEFAULT};
    struct grammar *g = NULL;
    struct error err = {0};
    cJSON *schema = cJSON_Parse(cJSON_GetObjectItem(line, "schema")->valuestring);
    assert_always(schema);
    int status = grammar_from_json_schema(schema, &options, &g, &err);
    cJSON_Delete(schema);
    if (status) {
        assert_always(err.text[0]);
        cJSON_AddNumberToObject(answer, "status", status);
        cJSON_AddStringToObject(answer, "error", err.text);
        return;
    }
    cJSON *accepted = cJSON_AddArrayToObject(answer, "accepted"),
          *samples = cJSON_AddArrayToObject(answer, "samples");
    const cJSON *text;
    cJSON_ArrayForEach(text, cJSON_GetObjectItem(line, "texts"))
    {
        cJSON_AddItemToArray(accepted, cJSON_CreateBool(accepts(g, text->valuestring)));
    }
    const cJSON *count = cJSON_GetObjectItem(line, "samples"), *seed = cJSON_GetObjectItem(line, "seed");
    for (int i = 0; count && i < count->valueint; i++) {
        char out[SAMPLE_BYTES_MAX + 2];
        if (sample(g, (uint64_t)seed->valueint * 1000 + (uint64_t)i, out))
            cJSON_AddItemToArray(samples, cJSON_CreateString(out));
    }
    grammar_free(g);
}

int main(void)
{
    char *line = NULL;
    size_t capacity = 0;
    while (getline(&line, &capacity, stdin) > 0) {
        cJSON *item = cJSON_Parse(line), *answer = cJSON_CreateObject();
        assert_always(item && answer);
        run(item, answer);
        char *text = cJSON_PrintUnformatted(answer);
        puts(text);
        free(text);
        cJSON_Delete(answer);
        cJSON_Delete(item);
    }
    free(line);
    return 0;
}

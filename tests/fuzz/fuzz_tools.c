/* An answer (the first byte picks the format, reasoning and the size of the pieces): however it is cut, the
 * events are the same; the text outside of calls is valid where the answer was. */
#include <stdint.h>

#include "unit/tools/tool_answers.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct tool_format *formats[NUM_FORMATS];
    struct buffer whole, cut;
    if (size == 0) return 0;
    for (int i = 0; i < NUM_FORMATS && !formats[i]; i++) formats[i] = format_of(format_templates[i]);
    const struct tool_format *f = formats[data[0] % NUM_FORMATS];
    bool in_reasoning = data[0] & 0x80;
    parse_joined(f, in_reasoning, (const char *)data + 1, size - 1, 0, &whole);
    parse_joined(f, in_reasoning, (const char *)data + 1, size - 1, 1 + data[0] / NUM_FORMATS % 21, &cut);
    assert_always(whole.num_bytes == cut.num_bytes && !memcmp(whole.data, cut.data, whole.num_bytes));
    buffer_deinit(&whole);
    buffer_deinit(&cut);
    return 0;
}

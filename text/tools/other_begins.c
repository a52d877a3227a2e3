/* other_begins.c - how models begin calls that do not do so as their template has it: what of the marks they leave out.
 *
 *   <function=        for <tool_call>\n<function=, whose first mark is often missing (Qwen3-Coder)
 *   <|begin|>         for <|begin|>functions. (Kimi), <|tool_call>call: (Gemma)
 *   <|begin|>         without the section around it
 *   <calls>{          for <calls>[{
 *   <|python_tag|>{   for {, where the template knows that mark (Llama 3) */
#include <string.h>

#include "text/tools/format.h"
#include "text/tools/slice.h"

#define PYTHON_TAG "<|python_tag|>"

static int add(struct tool_format *f, struct slice before, struct slice begin)
{
    size_t n = before.n + begin.n;
    if (f->num_others == OTHER_BEGINS_MAX || n > TOOL_LITERAL_MAX) return 0;
    char *text = arena_alloc(&f->arena, n + 1);
    if (!text) return STATUS_NO_MEMORY;
    memcpy(text, before.bytes, before.n);
    memcpy(text + before.n, begin.bytes, begin.n);
    text[n] = '\0';
    f->others[f->num_others++] = (struct other_begin){text, f->name_end, .needs_tool = true};
    return 0;
}

/* Behind its last mark: words that go in front of a name. */
static size_t word_bytes(struct slice s)
{
    size_t n = 0;
    while (n < s.n && s.bytes[s.n - 1 - n] != '>') n++;
    const char *words = s.bytes + s.n - n;
    bool is_word = n > 0 && n < s.n && words[0] >= 'a' && words[0] <= 'z';
    return is_word && !memchr(words, '<', n) ? n : 0;
}

/* An open mark behind another: how many bytes stand in front of it. */
static size_t bytes_before_open_mark(struct slice s)
{
    const char *last = memrchr(s.bytes, '<', s.n);
    bool is_open = last > s.bytes && !memchr(last, '>', (size_t)(s.bytes + s.n - last)) &&
                   memchr(last, '=', (size_t)(s.bytes + s.n - last));
    return is_open ? (size_t)(last - s.bytes) : 0;
}

int tool_format_add_others(struct tool_format *f, const char *source)
{
    const struct slice none = {"", 0}, section = slice_strip(slice_text(f->section_begin)),
                       begin = slice_text(f->call_begin);
    bool is_marked = begin.n > 0 && begin.bytes[0] == '<';
    size_t words = word_bytes(begin), before = begin.n > 0 ? bytes_before_open_mark(begin) : 0;
    int status = 0;
    if (status == 0 && before > 0) status = add(f, none, slice_from(begin, before));
    if (status == 0 && section.n > 0 && is_marked) status = add(f, none, begin);
    if (status == 0 && words > 0) status = add(f, section, slice_without_end(begin, words));
    if (status == 0 && slice_ends(section, slice_text("[")) && section.n > 1)
        status = add(f, slice_without_end(section, 1), begin);
    if (status == 0 && f->is_bare && *f->call_begin == '{' && strstr(source, PYTHON_TAG))
        status = add(f, slice_text(PYTHON_TAG), begin);
    return status;
}

/* other_begins.c - how models begin calls that do not do so as their template has it: what of the marks they leave out.
 *
 *   <function=        for <tool_call>\n<function=, whose first mark is often missing (Qwen3-Coder)
 *   <|begin|>         for <|begin|>functions. (Kimi), <|tool_call>call: (Gemma)
 *   <|begin|>         without the section around it
 *   <calls>{          for <calls>[{
 *   <|python_tag|>{   for {, where the template knows that mark (Llama 3); and <function=NAME>{}</function>, also without its
 *                     bracket
 *   <tools>{          for <tool_call>{, since the tools themselves stand so in the prompt (Qwen2.5-Coder)
 *   function_calls    for tool_calls in the mark of a section (DeepSeek's, as an earlier version has it)
 *   NAME<arguments>   for NAME:0<arguments> (Kimi)
 *   <calls>{"name":   for <calls>NAME, or NAME with tagged parameters: an object with the name among its keys */
#include <string.h>

#include "text/tools/format.h"
#include "text/tools/slice.h"

#define PYTHON_TAG "<|python_tag|>"
#define OBJECT_BEGIN "{\"name\": \""
#define OBJECT_NAME_END "\", \"arguments\": "

static const struct slice none = {"", 0};

static char *join(struct tool_format *f, struct slice a, struct slice b)
{
    char *text = arena_alloc(&f->arena, a.n + b.n + 1);
    if (!text) return NULL;
    memcpy(text, a.bytes, a.n);
    memcpy(text + a.n, b.bytes, b.n);
    text[a.n + b.n] = '\0';
    return text;
}

static int add(struct tool_format *f, struct slice begin, struct slice name_end, bool in_section)
{
    if (f->num_others == OTHER_BEGINS_MAX || begin.n > TOOL_LITERAL_MAX) return 0;
    char *text = join(f, begin, none), *end = join(f, name_end, none);
    if (!text || !end) return STATUS_NO_MEMORY;
    f->others[f->num_others++] =
        (struct other_begin){text, end, .needs_tool = true, .in_section = in_section};
    return 0;
}

/* The same with an end of its own, which outlives the format. */
static int add_with_end(struct tool_format *f, struct slice begin, const char *name_end, const char *end)
{
    int before = f->num_others, status = add(f, begin, slice_text(name_end), false);
    if (status == 0 && f->num_others > before) f->others[before].end = end;
    return status;
}

/* Two texts, one behind the other, that stand in no section. */
static int add_joined(struct tool_format *f, struct slice before, struct slice begin)
{
    const char *text = join(f, before, begin);
    return text ? add(f, slice_text(text), slice_text(f->name_end), false) : STATUS_NO_MEMORY;
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

/* Objects with the name among their keys, within the marks of a format that has the name in front of arguments, or parameters by
 * themselves. front: the marks. */
static int add_objects(struct tool_format *f, struct slice section, struct slice front)
{
    struct slice last = front.n > 0 ? front : section;
    bool is_marked = slice_ends(last, slice_text(">")) || slice_ends(last, slice_text("]"));
    if (!is_marked || strchr(f->call_begin, '{')) return 0;
    const char *begin = join(f, front, slice_text(OBJECT_BEGIN));
    return begin ? add(f, slice_text(begin), slice_text(OBJECT_NAME_END), true) : STATUS_NO_MEMORY;
}

/* Mistral's marks come and go with its versions: NAME[ARGS], NAME[CALL_ID]ID[ARGS], NAME{ */
static int add_mistral(struct tool_format *f, struct slice begin)
{
    static const char *const ends[] = {"[ARGS]", "[CALL_ID]\x01[ARGS]", ""};
    int status = 0;
    if (strcmp(f->call_begin, "[TOOL_CALLS]") != 0) return 0;
    for (size_t i = 0; i < sizeof ends / sizeof *ends && status == 0; i++)
        if (strcmp(f->name_end, ends[i]) != 0) status = add(f, begin, slice_text(ends[i]), false);
    return status;
}

/* DeepSeek's are <A>function<B>NAME and a fence, or <A>NAME<B>: each in the other's model, too, without the fence, the word, or
 * the first mark. */
static int add_deepseek(struct tool_format *f, struct slice begin)
{
    static const char open[] = "<｜tool▁call▁begin｜>", word[] = "function<｜tool▁sep｜>";
    const struct slice end = slice_text(f->name_end);
    int status = 0;
    if (!slice_begins(begin, slice_text(open))) return 0;
    if (slice_ends(begin, slice_text(word))) {
        status = add(f, begin, none, true);
        if (status == 0) status = add(f, slice_text(open), end, true);
        if (status == 0) status = add(f, slice_text(word), end, true);
        return status;
    }
    const char *old = join(f, begin, slice_text(word));
    return old ? add(f, slice_text(old), none, true) : STATUS_NO_MEMORY;
}

static int add_llama(struct tool_format *f, struct slice begin)
{
    int status = add_joined(f, slice_text(PYTHON_TAG), begin);
    if (status == 0) status = add_with_end(f, slice_text("<function="), ">", "</function>");
    return status ? status : add_with_end(f, slice_text("<function="), "", "</function>");
}

static int add_tools_mark(struct tool_format *f, struct slice begin, const char *source)
{
    static const char mark[] = "<tool_call>", other[] = "<tools>";
    if (!slice_begins(begin, slice_text(mark)) || !strstr(source, other)) return 0;
    const char *text = join(f, slice_text(other), slice_from(begin, sizeof mark - 1));
    return text ? add_with_end(f, slice_text(text), f->name_end, "</tools>") : STATUS_NO_MEMORY;
}

static int add_function_calls(struct tool_format *f, struct slice section, struct slice begin)
{
    static const char mark[] = "<｜DSML｜tool_calls>", other[] = "<｜DSML｜function_calls>\n";
    if (!slice_equal(section, slice_text(mark))) return 0;
    const char *text = join(f, slice_text(other), begin);
    return text ? add_with_end(f, slice_text(text), f->name_end, "</｜DSML｜function_calls>")
                : STATUS_NO_MEMORY;
}

int tool_format_add_others(struct tool_format *f, const char *source)
{
    const struct slice section = slice_strip(slice_text(f->section_begin)), begin = slice_text(f->call_begin),
                       end = slice_text(f->name_end);
    bool is_marked = begin.n > 0 && begin.bytes[0] == '<';
    size_t words = word_bytes(begin), before = begin.n > 0 ? bytes_before_open_mark(begin) : 0;
    const struct slice marks =
        before > 0 ? slice_strip((struct slice){begin.bytes, before}) : slice_without_end(begin, words);
    int status = 0;
    if (status == 0 && before > 0) status = add(f, slice_from(begin, before), end, false);
    if (status == 0 && section.n > 0 && is_marked) status = add(f, begin, end, false);
    if (status == 0 && words > 0) status = add(f, slice_without_end(begin, words), end, true);
    if (status == 0 && slice_ends(section, slice_text("[")) && section.n > 1)
        status = add_joined(f, slice_without_end(section, 1), begin);
    if (status == 0 && f->is_bare && *f->call_begin == '{' && strstr(source, PYTHON_TAG))
        status = add_llama(f, begin);
    if (status == 0) status = add_tools_mark(f, begin, source);
    if (status == 0) status = add_function_calls(f, section, begin);
    if (status == 0 && f->name_end[0] == ':' && f->name_end[1] == SLOT_INDEX)
        status = add(f, begin, slice_from(end, 2), true);
    if (status == 0) status = add_mistral(f, begin);
    if (status == 0) status = add_deepseek(f, begin);
    if (status == 0) status = add_objects(f, section, marks);
    return status;
}

#include "text/jinja/lexer.h"

#include <ctype.h>
#include <errno.h>

enum { BALANCE_MAX = 256 };

struct lexer {
    struct heap *heap;
    struct text source;
    size_t at;
    int line;
    bool line_starting; /* what was read last ended with a newline */
    struct token *tokens;
    int num_tokens, capacity;
    struct token nowhere;      /* takes what does not fit */
    char balance[BALANCE_MAX]; /* closers that are awaited */
    int num_balance;
    struct error *err;
    int status;
};

static int fail(struct lexer *x, const char *what)
{
    if (x->status == 0) {
        x->status = error_set(x->err, STATUS_INVALID, "chat template, line %d: %s", x->line, what);
    }
    return x->status;
}

static struct token *add_token(struct lexer *x, enum token_kind kind)
{
    if (x->num_tokens == x->capacity &&
        !heap_grow(x->heap, (void **)&x->tokens, x->num_tokens, &x->capacity, sizeof *x->tokens)) {
        return &x->nowhere;
    }
    struct token *t = &x->tokens[x->num_tokens++];
    *t = (struct token){.kind = kind, .line = x->line};
    return t;
}

static bool looking_at(const struct lexer *x, size_t at, const char *what)
{
    size_t n = strlen(what);
    return at <= x->source.num_bytes && x->source.num_bytes - at >= n &&
           memcmp(x->source.bytes + at, what, n) == 0;
}

static char byte_at(const struct lexer *x, size_t at)
{
    return at < x->source.num_bytes ? x->source.bytes[at] : '\0';
}

static void move_to(struct lexer *x, size_t at)
{
    if (at == x->at) return;
    for (size_t i = x->at; i < at; i++) x->line += x->source.bytes[i] == '\n';
    x->at = at;
    x->line_starting = x->source.bytes[at - 1] == '\n';
}

static size_t skip_space(const struct lexer *x, size_t at)
{
    size_t size;
    while (at < x->source.num_bytes && char_is_space(text_char_at(&x->source, at, &size))) at += size;
    return at;
}

/* ---- text outside of tags ---- */

/* Where the text [begin, end) ends once the tag after it has had its way with the white space. */
static size_t trim_before_tag(const struct lexer *x, size_t begin, size_t end, char sign, bool is_variable)
{
    struct text t = {.bytes = x->source.bytes + begin, .num_bytes = end - begin};
    size_t from, to;
    if (sign == '-') {
        text_strip_bounds(&t, NULL, false, true, &from, &to);
        return begin + to;
    }
    if (sign == '+' || is_variable) return end;
    const char *newline = memrchr(t.bytes, '\n', t.num_bytes);
    size_t line_begin = newline ? (size_t)(newline + 1 - t.bytes) : 0;
    if (!newline && !x->line_starting) return end;
    struct text tail = {.bytes = t.bytes + line_begin, .num_bytes = t.num_bytes - line_begin};
    text_strip_bounds(&tail, NULL, true, false, &from, &to);
    return from == tail.num_bytes ? begin + line_begin : end;
}

static void add_data(struct lexer *x, size_t begin, size_t end)
{
    if (begin == end) return;
    struct token *t = add_token(x, TOKEN_DATA);
    t->bytes = x->source.bytes + begin;
    t->num_bytes = end - begin;
}

/* The `-` or `+` at at, else 0. */
static char sign_at(const struct lexer *x, size_t at)
{
    char c = byte_at(x, at);
    return c == '-' || c == '+' ? c : '\0';
}

/* If a closing delimiter (with its sign) is at at: where the text goes on after it, else 0. */
static size_t match_close(const struct lexer *x, size_t at, const char *close, bool plus_allowed, bool trims)
{
    char sign = sign_at(x, at);
    if (sign == '+' && !plus_allowed) return 0;
    size_t after = at + (sign != '\0');
    if (!looking_at(x, after, close)) return 0;
    after += 2;
    if (sign == '-') return skip_space(x, after);
    if (sign == '\0' && trims && byte_at(x, after) == '\n') after++;
    return after;
}

/* `{% raw %}` at at (just behind the sign): where its content starts, else 0. */
static size_t match_raw_begin(const struct lexer *x, size_t at)
{
    at = skip_space(x, at);
    if (!looking_at(x, at, "raw")) return 0;
    return match_close(x, skip_space(x, at + 3), "%}", false, false);
}

static void lex_raw(struct lexer *x, size_t content)
{
    move_to(x, content);
    for (size_t at = content; at < x->source.num_bytes; at++) {
        if (!looking_at(x, at, "{%")) continue;
        char sign = sign_at(x, at + 2);
        size_t word = skip_space(x, at + 2 + (sign != '\0'));
        if (!looking_at(x, word, "endraw")) continue;
        size_t after = match_close(x, skip_space(x, word + 6), "%}", true, true);
        if (after == 0) continue;
        add_data(x, content, trim_before_tag(x, content, at, sign, false));
        move_to(x, after);
        return;
    }
    fail(x, "missing {% endraw %}");
}

static void lex_comment(struct lexer *x, size_t content)
{
    for (size_t at = content; at < x->source.num_bytes; at++) {
        size_t after = match_close(x, at, "#}", true, true);
        if (after == 0) continue;
        move_to(x, after);
        return;
    }
    fail(x, "missing end of comment");
}

/* The next {%, {{ or {#, or the end. */
static size_t find_tag(const struct lexer *x)
{
    size_t at = x->at;
    for (;; at++) {
        const char *brace = memchr(x->source.bytes + at, '{', x->source.num_bytes - at);
        if (!brace) return x->source.num_bytes;
        at = (size_t)(brace - x->source.bytes);
        char c = byte_at(x, at + 1);
        if (c == '%' || c == '{' || c == '#') return at;
    }
}

static void lex_tag(struct lexer *x, bool is_variable);

static void lex_text(struct lexer *x)
{
    size_t begin = x->at, tag = find_tag(x);
    if (tag == x->source.num_bytes) {
        add_data(x, begin, tag);
        move_to(x, tag);
        return;
    }
    char kind = byte_at(x, tag + 1), sign = sign_at(x, tag + 2);
    size_t inside = tag + 2 + (sign != '\0');
    add_data(x, begin, trim_before_tag(x, begin, tag, sign, kind == '{'));
    size_t raw = kind == '%' ? match_raw_begin(x, inside) : 0;
    move_to(x, inside);
    if (kind == '#') {
        lex_comment(x, inside);
    } else if (raw > 0) {
        lex_raw(x, raw);
    } else {
        add_token(x, kind == '{' ? TOKEN_VARIABLE_BEGIN : TOKEN_BLOCK_BEGIN);
        lex_tag(x, kind == '{');
    }
}

/* ---- inside tags ---- */

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_' || (unsigned char)c >= 0x80;
}

static int digit_of(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    char lower = (char)(c | 0x20);
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : 99;
}

/* Digits of a base, single underscores allowed between them: where they end (at itself if there are none). */
static size_t skip_digits(const struct lexer *x, size_t at, int base)
{
    if (digit_of(byte_at(x, at)) >= base) return at;
    while (digit_of(byte_at(x, at)) < base ||
           (byte_at(x, at) == '_' && digit_of(byte_at(x, at + 1)) < base)) {
        at++;
    }
    return at;
}

/* Copies [begin, end) without underscores into a small NUL-terminated array; false if too long. */
static bool copy_digits(const struct lexer *x, size_t begin, size_t end, char out[128])
{
    size_t n = 0;
    for (size_t i = begin; i < end; i++) {
        if (x->source.bytes[i] == '_') continue;
        if (n == 127) return false;
        out[n++] = x->source.bytes[i];
    }
    out[n] = '\0';
    return true;
}

static size_t skip_exponent(const struct lexer *x, size_t at)
{
    if ((byte_at(x, at) | 0x20) != 'e') return at;
    size_t digits = at + 1 + (sign_at(x, at + 1) != '\0');
    size_t end = skip_digits(x, digits, 10);
    return end > digits ? end : at;
}

static void lex_integer(struct lexer *x, size_t end, int base, size_t digits)
{
    char text[128];
    errno = 0;
    if (!copy_digits(x, digits, end, text)) {
        fail(x, "a number is too long");
        return;
    }
    struct token *t = add_token(x, TOKEN_INTEGER);
    t->integer = strtoll(text, NULL, base);
    if (errno != 0) fail(x, "an integer does not fit in 64 bits");
    move_to(x, end);
}

static void lex_number(struct lexer *x)
{
    size_t at = x->at, whole = skip_digits(x, at, 10), end = whole;
    bool after_dot = at > 0 && byte_at(x, at - 1) == '.';
    if (byte_at(x, end) == '.') end = max_of(skip_digits(x, end + 1, 10), end + 1);
    if (end == whole + 1) end = whole; /* a dot without digits belongs to what follows */
    end = skip_exponent(x, end);
    char text[128];
    if (end > whole && !after_dot) {
        if (!copy_digits(x, at, end, text)) {
            fail(x, "a number is too long");
            return;
        }
        add_token(x, TOKEN_FLOAT)->real = strtod(text, NULL);
        move_to(x, end);
        return;
    }
    char mark = (char)(byte_at(x, at + 1) | 0x20);
    int base = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 10;
    size_t digits = at + 2 + (byte_at(x, at + 2) == '_');
    if (byte_at(x, at) == '0' && base != 10 && skip_digits(x, digits, base) > digits) {
        lex_integer(x, skip_digits(x, digits, base), base, digits);
    } else {
        lex_integer(x, whole, 10, at);
    }
}

/* Reads up to max digits of base at *at into *code; the number of digits read. */
static int read_digits(const struct text *t, size_t *at, int base, int max, uint32_t *code)
{
    int n = 0;
    for (*code = 0; n < max && *at < t->num_bytes && digit_of(t->bytes[*at]) < base; n++) {
        *code = *code * (uint32_t)base + (uint32_t)digit_of(t->bytes[(*at)++]);
    }
    return n;
}

/* The escape whose letter is at *at (moved behind it), as Python reads it. */
static void append_escape(struct lexer *x, struct text_builder *b, const struct text *t, size_t *at)
{
    static const char letters[] = "n\nt\tr\ra\ab\bf\fv\v\\\\";
    char letter = t->bytes[(*at)++];
    if (letter == '\'' || letter == '"') {
        text_builder_append(b, &letter, 1, false);
        return;
    }
    if (letter == '\n') return;
    for (const char *p = letters; *p; p += 2) {
        if (*p != letter) continue;
        text_builder_append(b, p + 1, 1, false);
        return;
    }
    uint32_t code;
    int wanted = letter == 'x' ? 2 : letter == 'u' ? 4 : letter == 'U' ? 8 : 0;
    if (wanted > 0) {
        bool whole = read_digits(t, at, 16, wanted, &code) == wanted;
        if (!whole || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) {
            fail(x, "a string has a bad escape");
        } else {
            text_builder_append_char(b, (int32_t)code, false);
        }
    } else if (letter >= '0' && letter <= '7') {
        (*at)--;
        read_digits(t, at, 8, 3, &code);
        text_builder_append_char(b, (int32_t)code, false);
    } else {
        char kept[2] = {'\\', letter};
        text_builder_append(b, kept, 2, false);
    }
}

static void lex_string(struct lexer *x)
{
    char quote = byte_at(x, x->at);
    size_t begin = x->at + 1, end = begin;
    bool escapes = false;
    while (end < x->source.num_bytes && x->source.bytes[end] != quote) {
        bool escape = x->source.bytes[end] == '\\';
        escapes |= escape;
        end += escape ? 2 : 1;
    }
    if (end >= x->source.num_bytes) {
        fail(x, "a string does not end");
        return;
    }
    struct text raw = {.bytes = x->source.bytes + begin, .num_bytes = end - begin};
    const struct text *t = &raw;
    if (escapes) {
        struct text_builder b;
        text_builder_init(&b, x->heap);
        for (size_t at = 0; at < raw.num_bytes;) {
            const char *slash = memchr(raw.bytes + at, '\\', raw.num_bytes - at);
            size_t stop = slash ? (size_t)(slash - raw.bytes) : raw.num_bytes;
            text_builder_append(&b, raw.bytes + at, stop - at, false);
            at = stop + 1;
            if (slash) append_escape(x, &b, &raw, &at);
        }
        t = text_builder_take(&b);
    }
    struct token *token = add_token(x, TOKEN_STRING);
    token->bytes = t->bytes;
    token->num_bytes = t->num_bytes;
    move_to(x, end + 1);
}

static void lex_name(struct lexer *x)
{
    size_t end = x->at;
    while (is_word(byte_at(x, end))) end++;
    struct token *t = add_token(x, TOKEN_NAME);
    t->bytes = x->source.bytes + x->at;
    t->num_bytes = end - x->at;
    move_to(x, end);
}

static void keep_balance(struct lexer *x, char c)
{
    if (c == '(' || c == '[' || c == '{') {
        if (x->num_balance == BALANCE_MAX) {
            fail(x, "too many open brackets");
            return;
        }
        x->balance[x->num_balance++] = c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (c == ')' || c == ']' || c == '}') {
        if (x->num_balance == 0 || x->balance[--x->num_balance] != c) fail(x, "a bracket does not match");
    }
}

static void lex_operator(struct lexer *x)
{
    static const char pairs[][3] = {"//", "**", "==", "!=", ">=", "<="};
    char c = byte_at(x, x->at);
    size_t n = 0;
    for (size_t i = 0; i < array_length(pairs); i++) {
        if (looking_at(x, x->at, pairs[i])) n = 2;
    }
    if (n == 0 && c != '\0' && strchr("+-/*%~[](){}><=.:|,;", c)) n = 1;
    if (n == 0) {
        fail(x, "an unexpected character");
        return;
    }
    if (n == 1) keep_balance(x, c);
    struct token *t = add_token(x, TOKEN_OPERATOR);
    memcpy(t->op, x->source.bytes + x->at, n);
    move_to(x, x->at + n);
}

static void lex_tag(struct lexer *x, bool is_variable)
{
    while (x->status == 0 && !x->heap->failed) {
        if (x->at >= x->source.num_bytes) return; /* the parser says what is missing */
        if (x->num_balance == 0) {
            size_t after = match_close(x, x->at, is_variable ? "}}" : "%}", !is_variable, !is_variable);
            if (after > 0) {
                add_token(x, is_variable ? TOKEN_VARIABLE_END : TOKEN_BLOCK_END);
                move_to(x, after);
                return;
            }
        }
        size_t space = skip_space(x, x->at);
        char c = byte_at(x, x->at);
        if (space > x->at) {
            move_to(x, space);
        } else if (c >= '0' && c <= '9') {
            lex_number(x);
        } else if (is_word(c)) {
            lex_name(x);
        } else if (c == '\'' || c == '"') {
            lex_string(x);
        } else {
            lex_operator(x);
        }
    }
}

/* Copies the source with \n for \r\n and \r, and without one newline at its end. */
static bool normalise(struct lexer *x, const char *source, size_t n)
{
    char *bytes = heap_alloc(x->heap, n + 1);
    if (!bytes) return false;
    size_t num = 0;
    for (size_t i = 0; i < n; i++) {
        if (source[i] == '\n' && i > 0 && source[i - 1] == '\r') continue;
        bytes[num++] = source[i] == '\r' ? '\n' : source[i];
    }
    if (num > 0 && bytes[num - 1] == '\n') num--;
    x->source = (struct text){.bytes = bytes, .num_bytes = num};
    return true;
}

int lexer_run(struct heap *h, const char *source, size_t num_bytes, struct token **tokens, int *num_tokens,
              struct error *err)
{
    struct lexer x = {.heap = h, .line = 1, .line_starting = true, .err = err};
    if (!normalise(&x, source, num_bytes))
        return error_set(err, STATUS_NO_MEMORY, "no memory for the chat template");
    while (x.status == 0 && !h->failed && x.at < x.source.num_bytes) lex_text(&x);
    if (x.status != 0) return x.status;
    add_token(&x, TOKEN_END);
    if (h->failed) return error_set(err, STATUS_LIMIT, "the chat template is too large");
    *tokens = x.tokens;
    *num_tokens = x.num_tokens;
    return 0;
}

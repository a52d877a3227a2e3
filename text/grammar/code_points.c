#include "text/grammar/code_points.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/check.h"
#include "text/tokenizer/grapheme.h"

void code_points_init(struct pool *set)
{
    pool_init(set, sizeof(struct code_point_range), CODE_POINT_RANGES_MAX);
}

void code_points_add(struct pool *set, uint32_t lo, uint32_t hi)
{
    struct code_point_range *r = pool_push(set, 1);
    if (r) *r = (struct code_point_range){lo, hi};
}

void code_points_add_all(struct pool *set, const struct pool *other)
{
    const struct code_point_range *r = other->items;
    for (uint32_t i = 0; i < other->count; i++) code_points_add(set, r[i].lo, r[i].hi);
}

static int compare_ranges(const void *a, const void *b)
{
    const struct code_point_range *x = a, *y = b;
    return x->lo < y->lo ? -1 : x->lo > y->lo;
}

void code_points_normalize(struct pool *set)
{
    struct code_point_range *r = set->items;
    if (set->count == 0) return;
    qsort(r, set->count, sizeof *r, compare_ranges);
    uint32_t n = 0;
    for (uint32_t i = 1; i < set->count; i++) {
        if (r[i].lo <= r[n].hi + 1)
            r[n].hi = max_of(r[n].hi, r[i].hi);
        else
            r[++n] = r[i];
    }
    set->count = n + 1;
}

void code_points_complement(struct pool *set)
{
    code_points_normalize(set);
    struct pool out;
    code_points_init(&out);
    const struct code_point_range *r = set->items;
    uint32_t next = 0;
    for (uint32_t i = 0; i < set->count; i++) {
        if (r[i].lo > next) code_points_add(&out, next, r[i].lo - 1);
        next = r[i].hi + 1;
    }
    if (next <= CODE_POINT_MAX) code_points_add(&out, next, CODE_POINT_MAX);
    if (set->status) out.status = set->status;
    pool_deinit(set);
    *set = out;
}

bool code_points_has(const struct pool *set, uint32_t code_point)
{
    const struct code_point_range *r = set->items;
    uint32_t lo = 0, hi = set->count;
    while (lo < hi) {
        uint32_t middle = lo + (hi - lo) / 2;
        if (r[middle].hi < code_point)
            lo = middle + 1;
        else
            hi = middle;
    }
    return lo < set->count && r[lo].lo <= code_point;
}

static void add_list(struct pool *set, const uint32_t (*ranges)[2], size_t n)
{
    for (size_t i = 0; i < n; i++) code_points_add(set, ranges[i][0], ranges[i][1]);
}

void code_points_add_escape(struct pool *set, char name)
{
    static const uint32_t word[][2] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
    static const uint32_t space[][2] = {
        {9, 13},          {' ', ' '},       {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
        {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
    static const uint32_t dot[][2] = {{0, 9}, {11, 12}, {14, 0x2027}, {0x202A, CODE_POINT_MAX}};
    if (name == 'd') code_points_add(set, '0', '9');
    if (name == 'w') add_list(set, word, array_length(word));
    if (name == 's') add_list(set, space, array_length(space));
    if (name == '.') add_list(set, dot, array_length(dot));
}

/* utf8proc's short names of the categories, in its order; "Cn" is 0. */
static const char category_names[][3] = {"Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd",
                                         "Nl", "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm",
                                         "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co"};

static uint32_t matching_categories(const char *name, size_t n)
{
    uint32_t mask = 0;
    if (n < 1 || n > 2) return 0;
    for (unsigned i = 0; i < array_length(category_names); i++)
        if (!memcmp(category_names[i], name, n)) mask |= 1u << i;
    return mask;
}

static const struct {
    const char *name;
    const char *category;
} long_names[] = {{"Letter", "L"},
                  {"Uppercase_Letter", "Lu"},
                  {"Lowercase_Letter", "Ll"},
                  {"Mark", "M"},
                  {"Number", "N"},
                  {"Decimal_Number", "Nd"},
                  {"Punctuation", "P"},
                  {"Symbol", "S"},
                  {"Separator", "Z"},
                  {"Space_Separator", "Zs"},
                  {"Other", "C"},
                  {"digit", "Nd"}};

/* All code points by category, from begin to the next one's: read once a process, since that takes 4 ms, and then immutable. */
enum { RUNS_MAX = 1 << 14 }; /* Unicode 15 has 3,400 */
static struct category_run {
    uint32_t begin;
    int category;
    bool is_picture; /* Extended_Pictographic, of Unicode 17: older editions have these and more */
} runs[RUNS_MAX + 1];
static int num_runs;
static pthread_once_t runs_are_read = PTHREAD_ONCE_INIT;

static void read_runs(void)
{
    for (uint32_t c = 0; c <= CODE_POINT_MAX; c++) {
        const struct category_run run = {c, utf8proc_category((utf8proc_int32_t)c), grapheme_is_picture(c)};
        const struct category_run *last = num_runs > 0 ? &runs[num_runs - 1] : NULL;
        if (last && last->category == run.category && last->is_picture == run.is_picture) continue;
        assert_always(num_runs < RUNS_MAX);
        runs[num_runs++] = run;
    }
    runs[num_runs].begin = CODE_POINT_MAX + 1;
}

static bool is_name(const char *name, size_t n, const char *wanted)
{
    return strlen(wanted) == n && !memcmp(wanted, name, n);
}

/* What an emoji of several code points is made of beside pictures: signs of keys, joiners, flags, colours of skin and hair, tags. */
static void add_emoji_components(struct pool *set)
{
    static const struct code_point_range components[] = {
        {'#', '#'},       {'*', '*'},         {'0', '9'},         {0x200D, 0x200D},   {0x20E3, 0x20E3},
        {0xFE0F, 0xFE0F}, {0x1F1E6, 0x1F1FF}, {0x1F3FB, 0x1F3FF}, {0x1F9B0, 0x1F9B3}, {0xE0020, 0xE007F}};
    for (size_t i = 0; i < array_length(components); i++)
        code_points_add(set, components[i].lo, components[i].hi);
}

/* False: the name is of neither. */
static bool add_emoji_property(struct pool *set, const char *name, size_t n)
{
    bool is_component = is_name(name, n, "Emoji_Component");
    if (is_component) add_emoji_components(set);
    if (!is_name(name, n, "Extended_Pictographic")) return is_component;
    for (int i = 0; i < num_runs; i++)
        if (runs[i].is_picture) code_points_add(set, runs[i].begin, runs[i + 1].begin - 1);
    return true;
}

bool code_points_add_property(struct pool *set, const char *name, size_t n)
{
    for (size_t i = 0; i < array_length(long_names); i++) {
        if (is_name(name, n, long_names[i].name)) {
            name = long_names[i].category;
            n = strlen(name);
            break;
        }
    }
    uint32_t mask = matching_categories(name, n);
    pthread_once(&runs_are_read, read_runs);
    if (mask == 0) return add_emoji_property(set, name, n);
    for (int i = 0; i < num_runs; i++)
        if (mask >> runs[i].category & 1) code_points_add(set, runs[i].begin, runs[i + 1].begin - 1);
    return true;
}

int code_point_read(const char *text, size_t num_bytes, uint32_t *out)
{
    utf8proc_int32_t c;
    if (num_bytes == 0) return 0;
    utf8proc_ssize_t n = utf8proc_iterate((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)num_bytes, &c);
    if (n <= 0) return 0;
    *out = (uint32_t)c;
    return (int)n;
}

int code_point_write(uint32_t code_point, char out[4])
{
    return (int)utf8proc_encode_char((utf8proc_int32_t)code_point, (utf8proc_uint8_t *)out);
}

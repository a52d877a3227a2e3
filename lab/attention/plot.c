/* plot.c - the picture of the lab: time and bytes over N, and the roofline. All axes are logarithmic. */
#include <math.h>

#include "base/check.h"
#include "lab/attention/lab.h"

enum {
    WIDTH = 1080,
    LEFT = 70,
    PLOT_WIDTH = 400,
    PLOT_HEIGHT = 300,
    TOP = 44,
    PANEL_HEIGHT = 400,
    SECOND = 590
};

/* Distinguishable for most eyes; the same on light and on dark ground. */
static const char *const colours[NUM_LAB_ALGORITHMS] = {
    [LAB_STANDARD] = "#8a5a2b",        [LAB_ONLINE_SOFTMAX] = "#9467bd",
    [LAB_FLASH1] = "#e15759",          [LAB_FLASH2] = "#4e79a7",
    [LAB_FLASH2_BACKWARD] = "#e377c2", [LAB_FLASH_MASK] = "#f28e2b",
    [LAB_DEVICE_PROMPT] = "#2f9e8f",   [LAB_DEVICE_DOCUMENTS] = "#1c5f56",
    [LAB_FLASH_DECODING] = "#59a14f",  [LAB_FLASH_DECODING_PLUS] = "#c9a227",
    [LAB_DEVICE_DECODING] = "#7f7f7f"};

struct axis {
    double least, most;
};

struct panel {
    const char *title, *across;
    bool tokens; /* the axis across is N */
    int left, top;
    struct axis x, y;
};

static double place(struct axis a, double value)
{
    return (log(value) - log(a.least)) / (log(a.most) - log(a.least));
}

static double x_of(const struct panel *p, double value)
{
    return p->left + PLOT_WIDTH * place(p->x, value);
}

static double y_of(const struct panel *p, double value)
{
    return p->top + TOP + PLOT_HEIGHT * (1 - place(p->y, value));
}

/* Room for the value, with some beside it. */
static void widen(struct axis *a, double value)
{
    a->least = fmin(a->least, value / 1.3);
    a->most = fmax(a->most, value * 1.3);
}

/* 1.5e-5 as 15u, 2e9 as 2G. */
static void format(double value, char text[32])
{
    static const char units[] = {'n', 'u', 'm', 0, 'k', 'M', 'G', 'T', 'P'};
    int unit = (int)fmin(fmax(floor(log10(value) / 3 + 1e-9), -3), 5);
    snprintf(text, 32, "%g%.1s", value / pow(1000, unit), &units[unit + 3]);
}

static void draw_tick(const struct panel *p, bool across, double value, FILE *out)
{
    char text[32];
    if (across)
        snprintf(text, sizeof text, "%g", value);
    else
        format(value, text);
    if (across)
        fprintf(out,
                "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/>"
                "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n",
                x_of(p, value), x_of(p, value), p->top + TOP, p->top + TOP + PLOT_HEIGHT, x_of(p, value),
                p->top + TOP + PLOT_HEIGHT + 17, text);
    else
        fprintf(out,
                "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>"
                "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n",
                p->left, p->left + PLOT_WIDTH, y_of(p, value), y_of(p, value), p->left - 7,
                y_of(p, value) + 4, text);
}

/* Powers of two for N; else powers of ten, with 2 and 5 times them where there are few. */
static void draw_ticks(const struct panel *p, bool across, FILE *out)
{
    static const double steps[] = {1, 2, 5};
    struct axis a = across ? p->x : p->y;
    double base = across && p->tokens ? 2 : 10;
    int num_steps = base > 2 && a.most < 300 * a.least ? 3 : 1;
    for (double power = floor(log(a.least) / log(base)); pow(base, power) <= a.most; power++)
        for (int i = 0; i < num_steps; i++) {
            double value = steps[i] * pow(base, power);
            if (value >= a.least && value <= a.most) draw_tick(p, across, value, out);
        }
}

static void draw_frame(const struct panel *p, FILE *out)
{
    fprintf(out, "<text class=\"title\" x=\"%d\" y=\"%d\">%s</text>\n", p->left, p->top + 28, p->title);
    draw_ticks(p, true, out);
    draw_ticks(p, false, out);
    fprintf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>\n", p->left + PLOT_WIDTH,
            p->top + TOP + PLOT_HEIGHT + 34, p->across);
}

static double bytes_of(const struct measurement *m)
{
    return isnan(m->counted) ? m->formula : m->counted;
}

static double seconds_of(const struct measurement *m)
{
    return m->seconds;
}

/* One line for each algorithm, whose measurements are neighbours; dashed where it decodes. */
static void draw_over_n(struct panel *p, const struct measurement *m, int count,
                        double (*value)(const struct measurement *m), FILE *out)
{
    for (int i = 0; i < count; i++) {
        widen(&p->x, m[i].shape.num_keys);
        widen(&p->y, value(&m[i]));
    }
    draw_frame(p, out);
    for (int i = 0; i < count; i++) {
        bool first = i == 0 || m[i].id != m[i - 1].id, last = i + 1 == count || m[i].id != m[i + 1].id;
        if (first)
            fprintf(out, "<polyline class=\"curve\" stroke=\"%s\"%s points=\"", colours[m[i].id],
                    m[i].shape.num_queries == 1 ? " stroke-dasharray=\"5 3\"" : "");
        fprintf(out, "%.1f,%.1f ", x_of(p, m[i].shape.num_keys), y_of(p, value(&m[i])));
        if (last) fprintf(out, "\"/>\n");
    }
}

static void draw_roof(const struct panel *p, const struct lab *lab, FILE *out)
{
    double ridge = fmin(fmax(lab->flops_per_second / lab->bytes_per_second, p->x.least), p->x.most);
    double points[] = {p->x.least, ridge, p->x.most};
    fprintf(out, "<polyline class=\"roof\" points=\"");
    for (int i = 0; i < 3; i++)
        fprintf(out, "%.1f,%.1f ", x_of(p, points[i]), y_of(p, lab_roof(lab, points[i], 1)));
    fprintf(out, "\"/>\n");
}

static void draw_roofline(struct panel *p, const struct lab *lab, const struct measurement *m, int count,
                          FILE *out)
{
    widen(&p->x, lab->flops_per_second / lab->bytes_per_second);
    widen(&p->y, lab->flops_per_second);
    for (int i = 0; i < count; i++) {
        widen(&p->x, m[i].flops / bytes_of(&m[i]));
        widen(&p->y, m[i].flops / m[i].seconds);
    }
    widen(&p->y, lab_roof(lab, p->x.least, 1));
    draw_frame(p, out);
    draw_roof(p, lab, out);
    for (int i = 0; i < count; i++)
        if (i + 1 == count || m[i].id != m[i + 1].id)
            fprintf(out,
                    "<circle class=\"point\" cx=\"%.1f\" cy=\"%.1f\" r=\"6\" "
                    "fill=\"%s\"><title>%s</title></circle>\n",
                    x_of(p, m[i].flops / bytes_of(&m[i])), y_of(p, m[i].flops / m[i].seconds),
                    colours[m[i].id], lab_algorithms[m[i].id].title);
}

static void draw_legend(int left, int top, const struct measurement *m, int count, FILE *out)
{
    int line = 0;
    for (int i = 0; i < count; i++) {
        if (i + 1 < count && m[i].id == m[i + 1].id) continue;
        int y = top + 24 * line++;
        fprintf(out,
                "<line class=\"curve\" stroke=\"%s\"%s x1=\"%d\" x2=\"%d\" y1=\"%d\" y2=\"%d\"/><circle "
                "cx=\"%d\" "
                "cy=\"%d\" r=\"5\" fill=\"%s\"/><text x=\"%d\" y=\"%d\">%s</text>\n",
                colours[m[i].id], m[i].shape.num_queries == 1 ? " stroke-dasharray=\"5 3\"" : "", left,
                left + 36, y, y, left + 18, y, colours[m[i].id], left + 46, y + 4,
                lab_algorithms[m[i].id].title);
    }
    fprintf(out, "<text x=\"%d\" y=\"%d\">dashed: decoding, one query</text>\n", left, top + 24 * line + 8);
}

void lab_plot(const struct lab *lab, const struct measurement *m, int count, FILE *out)
{
    struct axis none = {INFINITY, 0};
    struct panel time = {"Time, seconds", "N", true, LEFT, 30, none, none},
                 bytes = {"Bytes from and to slow memory", "N", true, SECOND, 30, none, none},
                 roofline = {"Roofline: FLOP/s at the largest N",
                             "FLOP a byte",
                             false,
                             LEFT,
                             30 + PANEL_HEIGHT,
                             none,
                             none};
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" role=\"img\" "
            "aria-label=\"attention: time and bytes over the number of tokens, and a roofline\">\n"
            "<style>\n"
            "svg { background: #fff; font: 12px system-ui, sans-serif; }\n"
            "text { fill: #444; } .title { fill: #111; font-size: 14px; }\n"
            ".grid { stroke: #ddd; } .curve { fill: none; stroke-width: 2; }\n"
            ".roof { fill: none; stroke: #111; stroke-width: 2; } .point { stroke: #fff; }\n"
            "@media (prefers-color-scheme: dark) {\n"
            "svg { background: #16181d; } text { fill: #b5bac4; } .title { fill: #f0f2f5; }\n"
            ".grid { stroke: #33373f; } .roof { stroke: #f0f2f5; } .point { stroke: #16181d; }\n"
            "}\n</style>\n"
            "<text class=\"title\" x=\"%d\" y=\"24\">%s, %d heads of %d</text>\n",
            WIDTH, 2 * PANEL_HEIGHT + 50, LEFT, server_rows_description(lab->server), lab->num_heads,
            lab->head_dim);
    draw_over_n(&time, m, count, seconds_of, out);
    draw_over_n(&bytes, m, count, bytes_of, out);
    draw_roofline(&roofline, lab, m, count, out);
    draw_legend(SECOND, roofline.top + TOP + 20, m, count, out);
    fprintf(out, "</svg>\n");
}

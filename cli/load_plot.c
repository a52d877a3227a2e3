/* load_plot.c - the picture of a load: two panels, each a measure over its percentiles. */
#include <math.h>

#include "cli/load_report.h"

enum {
    WIDTH = 760,
    PANEL_HEIGHT = 240,
    LEFT = 70,
    RIGHT = 20,
    TOP = 40,
    PLOT_HEIGHT = 150,
    NUM_POINTS = 200
};

struct panel {
    const char *title;
    struct samples *samples;
    double limit_ms; /* 0: none */
    double most_ms;  /* at the top of the axis */
    int top;
};

static double x_of(double percentile)
{
    return LEFT + percentile * (WIDTH - LEFT - RIGHT);
}

static double y_of(const struct panel *p, double ms)
{
    return p->top + TOP + PLOT_HEIGHT * (1 - fmin(ms / p->most_ms, 1));
}

/* 1, 2 or 5 times a power of ten: a step of which at most five make the whole. */
static double tick_of(double most)
{
    double power = pow(10, floor(log10(most / 5)));
    double steps[] = {1, 2, 5, 10};
    for (int i = 0; i < 3; i++)
        if (steps[i] * power * 5 >= most) return steps[i] * power;
    return 10 * power;
}

static void draw_axes(const struct panel *p, FILE *out)
{
    double tick = tick_of(p->most_ms);
    fprintf(out, "<text class=\"title\" x=\"%d\" y=\"%d\">%s, ms</text>\n", LEFT, p->top + 22, p->title);
    for (int i = 0; i <= (int)(p->most_ms / tick); i++) {
        double ms = i * tick;
        fprintf(out,
                "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>"
                "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%g</text>\n",
                LEFT, WIDTH - RIGHT, y_of(p, ms), y_of(p, ms), LEFT - 8, y_of(p, ms) + 4, ms);
    }
    for (int percent = 0; percent <= 100; percent += 10)
        fprintf(out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">p%d</text>\n", x_of(percent / 100.0),
                p->top + TOP + PLOT_HEIGHT + 18, percent);
}

static void draw_curve(const struct panel *p, FILE *out)
{
    fprintf(out, "<polyline class=\"curve\" points=\"");
    for (int i = 0; i <= NUM_POINTS; i++) {
        double q = (double)i / NUM_POINTS;
        fprintf(out, "%.1f,%.1f ", x_of(q), y_of(p, samples_percentile(p->samples, q)));
    }
    fprintf(out, "\"/>\n");
    if (p->limit_ms <= 0 || p->limit_ms > p->most_ms) return;
    fprintf(out,
            "<line class=\"limit\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/><text class=\"limit-text\" "
            "x=\"%d\" y=\"%.1f\" text-anchor=\"end\">limit %g</text>\n",
            LEFT, WIDTH - RIGHT, y_of(p, p->limit_ms), y_of(p, p->limit_ms), WIDTH - RIGHT - 6,
            y_of(p, p->limit_ms) + 14, p->limit_ms);
}

static void draw_panel(struct panel *p, FILE *out)
{
    p->most_ms = samples_percentile(p->samples, 1);
    if (!(p->most_ms > 0)) p->most_ms = 1; /* no samples */
    if (p->limit_ms > 0 && p->limit_ms < 3 * p->most_ms) p->most_ms = fmax(p->most_ms, 1.1 * p->limit_ms);
    draw_axes(p, out);
    if (p->samples->count > 0) draw_curve(p, out);
}

void load_report_plot(struct load_report *r, FILE *out)
{
    struct panel panels[] = {
        {.title = "Time to first token", .samples = &r->first_ms, .limit_ms = r->limits.first_ms, .top = 0},
        {.title = "Time between chunks",
         .samples = &r->gap_ms,
         .limit_ms = r->limits.gap_ms,
         .top = PANEL_HEIGHT}};
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" role=\"img\" "
            "aria-label=\"time to first token and between chunks over their percentiles\">\n"
            "<style>\n"
            "svg { background: #fff; font: 12px system-ui, sans-serif; }\n"
            "text { fill: #444; } .title { fill: #111; font-size: 14px; }\n"
            ".grid { stroke: #ddd; } .curve { fill: none; stroke: #1f6fd0; stroke-width: 2; }\n"
            ".limit { stroke: #c0392b; stroke-dasharray: 4 3; } .limit-text { fill: #c0392b; }\n"
            "@media (prefers-color-scheme: dark) {\n"
            "svg { background: #16181d; } text { fill: #b5bac4; } .title { fill: #f0f2f5; }\n"
            ".grid { stroke: #33373f; } .curve { stroke: #6cb0ff; }\n"
            ".limit { stroke: #ff8a7a; } .limit-text { fill: #ff8a7a; }\n"
            "}\n</style>\n",
            WIDTH, 2 * PANEL_HEIGHT + 30);
    for (int i = 0; i < 2; i++) draw_panel(&panels[i], out);
    fprintf(
        out,
        "<text x=\"%d\" y=\"%d\">%lld of %lld requests complete, %.1f generated tokens/s</text>\n</svg>\n",
        LEFT, 2 * PANEL_HEIGHT + 12, (long long)r->num_complete, (long long)r->options->requests,
        r->seconds > 0 ? (double)r->num_tokens / r->seconds : 0.0);
}

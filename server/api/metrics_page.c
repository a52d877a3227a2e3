#include "server/api/metrics_page.h"

#include "base/clock.h"
#include "base/metrics.h"
#include "server/api/api.h"
#include "server/api/request_metrics.h"

enum { PAGE_BYTES_MAX = 16 << 20, PERIOD_MS = 100, PAGES_PER_PERIOD = 4 };

void metrics_page_init(struct metrics_page *page)
{
    *page = (struct metrics_page){0};
    buffer_init(&page->text, PAGE_BYTES_MAX);
}

void metrics_page_deinit(struct metrics_page *page)
{
    buffer_deinit(&page->text);
}

static bool may_be_made(struct metrics_page *page)
{
    uint64_t now_ns = clock_monotonic_ns();
    if (now_ns - page->since_ns >= PERIOD_MS * 1000000ull) {
        page->since_ns = now_ns;
        page->num_made = 0;
    }
    return page->num_made < PAGES_PER_PERIOD || buffer_failed(&page->text);
}

const struct buffer *metrics_page_text(struct metrics_page *page, struct server *server, bool openmetrics)
{
    if (!may_be_made(page)) return &page->text;
    page->num_made++;
    buffer_clear(&page->text);
    request_metrics_refresh(server, server->api->num_admitted);
    metrics_render(&page->text, openmetrics);
    return &page->text;
}

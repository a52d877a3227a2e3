/* exchange_page.c - a page that was put together in a buffer. */
#include "base/buffer.h"
#include "server/exchange.h"

void exchange_reply_page(struct exchange *x, const char *content_type, const struct buffer *page)
{
    if (buffer_failed(page))
        exchange_error(x, 500, "server_error", NULL, NULL, 0, "out of memory");
    else
        exchange_reply(x, 200, content_type, page->data, page->num_bytes);
}

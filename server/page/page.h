/* page.h - the page for people: one HTML file inside the program, a chat and charts of the metrics. It can do
 * no more than any client: it asks the API for answers, with the key that its reader types. Thread: the loop's. */
#ifndef SERVER_PAGE_PAGE_H
#define SERVER_PAGE_PAGE_H

#include "server/exchange.h"

/* GET /. Where the server has no key, and is not on a loopback address, the page is refused. */
void endpoint_page(struct exchange *x);

#endif

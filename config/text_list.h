/* text_list.h - texts in their order. The list owns them; zeroed, it is empty. */
#ifndef CONFIG_TEXT_LIST_H
#define CONFIG_TEXT_LIST_H

#include <stddef.h>

#include "base/status.h"

struct text_list {
    char **items;
    int num_items;
};

/* A copy of n bytes of text, which hold no NUL; NULL: a NULL item. 0 or STATUS_NO_MEMORY. */
int text_list_append(struct text_list *list, const char *text, size_t n) must_check;
void text_list_deinit(struct text_list *list);

#endif

/* text_list.h - texts in their order, each with where it was said. The list owns them; zeroed, it is empty. */
#ifndef CONFIG_TEXT_LIST_H
#define CONFIG_TEXT_LIST_H

#include <stddef.h>

#include "base/status.h"

struct text_list {
    char **items;
    char **sources; /* "flashd.yaml:3", ...; NULL where nobody said */
    int num_items;
};

/* A copy of n bytes of text, which hold no NUL; NULL: a NULL item. 0 or STATUS_NO_MEMORY. */
int text_list_append(struct text_list *list, const char *text, size_t n) must_check;
int text_list_append_from(struct text_list *list, const char *text, size_t n, const char *source) must_check;
void text_list_deinit(struct text_list *list);

#endif

#include "config/text_list.h"

#include <stdlib.h>
#include <string.h>

int text_list_append(struct text_list *list, const char *text, size_t n)
{
    char **items = realloc(list->items, (size_t)(list->num_items + 1) * sizeof *items);
    if (!items) return STATUS_NO_MEMORY;
    list->items = items;
    items[list->num_items] = text ? strndup(text, n) : NULL;
    if (text && !items[list->num_items]) return STATUS_NO_MEMORY;
    list->num_items++;
    return STATUS_OK;
}

void text_list_deinit(struct text_list *list)
{
    for (int i = 0; i < list->num_items; i++) free(list->items[i]);
    free(list->items);
    *list = (struct text_list){0};
}

#include "config/text_list.h"

#include <stdlib.h>
#include <string.h>

static int grow(char ***items, int num_items)
{
    char **grown = realloc(*items, (size_t)num_items * sizeof *grown);
    if (!grown) return STATUS_NO_MEMORY;
    *items = grown;
    return STATUS_OK;
}

int text_list_append_from(struct text_list *list, const char *text, size_t n, const char *source)
{
    int at = list->num_items;
    if (grow(&list->items, at + 1) || grow(&list->sources, at + 1)) return STATUS_NO_MEMORY;
    list->items[at] = text ? strndup(text, n) : NULL;
    list->sources[at] = source ? strdup(source) : NULL;
    if ((text && !list->items[at]) || (source && !list->sources[at])) {
        free(list->items[at]);
        free(list->sources[at]);
        return STATUS_NO_MEMORY;
    }
    list->num_items++;
    return STATUS_OK;
}

int text_list_append(struct text_list *list, const char *text, size_t n)
{
    return text_list_append_from(list, text, n, NULL);
}

void text_list_deinit(struct text_list *list)
{
    for (int i = 0; i < list->num_items; i++) {
        free(list->items[i]);
        free(list->sources[i]);
    }
    free(list->items);
    free(list->sources);
    *list = (struct text_list){0};
}

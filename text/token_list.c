#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "text/tokenizer.h"

int token_list_append(struct token_list *list, const int32_t *ids, int32_t num_ids, int32_t max_ids)
{
    const int32_t room = max_of(max_ids - list->num_ids, 0), count = min_of(num_ids, room);
    if (count > list->capacity - list->num_ids) {
        const int64_t least = (int64_t)list->num_ids + count, twice = (int64_t)list->capacity * 2 + 64,
                      capacity = min_of(max_of(least, twice), (int64_t)max_of(max_ids, list->num_ids));
        int32_t *grown = realloc(list->ids, (size_t)capacity * sizeof *grown);
        if (!grown) return STATUS_NO_MEMORY;
        list->ids = grown;
        list->capacity = (int32_t)capacity;
    }
    if (count > 0) memcpy(list->ids + list->num_ids, ids, (size_t)count * sizeof *ids);
    list->num_ids += count;
    return count < num_ids ? STATUS_LIMIT : 0;
}

void token_list_deinit(struct token_list *list)
{
    free(list->ids);
    *list = (struct token_list){0};
}

/* id_list.h - a few ids in a row: stop tokens, ends of an answer. Thread: any. */
#ifndef BASE_ID_LIST_H
#define BASE_ID_LIST_H

#include <stdbool.h>
#include <stdint.h>

static inline bool id_list_has(const int32_t *ids, int32_t num_ids, int32_t id)
{
    for (int32_t i = 0; i < num_ids; i++)
        if (ids[i] == id) return true;
    return false;
}

#endif

/* tasks.h - what embeddings may be for, of a model that has adapters for it beside its matrices. Plain data without pointers. */
#ifndef LINK_TASKS_H
#define LINK_TASKS_H

#include <stdint.h>

enum { TASKS_MAX = 8, TASK_NAME_BYTES = 32, TASK_TEXT_BYTES = 96 /* with their NUL */ };

struct tasks {
    int32_t num; /* task i is adapter i + 1 (request_slots.h: lora); 0: there are none */
    struct task {
        char name[TASK_NAME_BYTES];
        char instruction[TASK_TEXT_BYTES]; /* what a text begins with; "": nothing */
    } items[TASKS_MAX];
};

#endif

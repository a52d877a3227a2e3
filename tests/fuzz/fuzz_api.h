/* fuzz_api.h - fuzz_server.h's server with its endpoints on a loop, and a link whose engine the fuzzer is. */
#ifndef TESTS_FUZZ_FUZZ_API_H
#define TESTS_FUZZ_FUZZ_API_H

#include "fuzz/fuzz_server.h"
#include "server/api/generation.h"
#include "server/masks.h"
#include "unit/link/link_rig.h"

/* Behind fuzz_server_init. */
static inline void fuzz_api_open(struct server *server, uv_loop_t *loop, int num_slots)
{
    static const char *const phases[] = {"all"};
    static const double seconds[] = {1};
    assert_always(uv_loop_init(loop) == 0);
    server->loop = loop;
    server->link = link_rig_create(num_slots, FUZZ_MODEL_LEN);
    server->slots = link_slots(server->link);
    assert_always(masks_create(server->link, server->grammars, &server->masks, NULL) == 0);
    atomic_store(&link_counters(server->link)->tokens_per_second, 10);
    assert_always(api_init(server, NULL) == 0);
    api_on_loaded(server, phases, seconds, 1);
}

#endif

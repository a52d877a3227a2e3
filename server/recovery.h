/* recovery.h - what happens to requests when an engine process dies.
 *
 * Every unfinished request is handed to the next engine with what it has published; the bits of a token
 * depend on its prefix, its seed and its position alone, so answers go on as if nothing had been. But a
 * request may be what kills: with it on board, that is with a part of it in a step that never ended, every
 * engine dies at the same place. So
 *
 *   on board of two deaths in a row, at the same place   -> tried alone, before all others
 *   and of a third, with nobody else on board            -> fails with a sentence, its digest is logged
 *   `--max-engine-deaths` deaths in ten minutes          -> the caller gives up
 *
 * Only deaths of what the engine was computing accuse somebody: faults, failed devices, steps that never end.
 * A signal that was sent does not. Two deaths are at the same place when nothing was published between them
 * and the tokens that the two steps were to compute overlap: a request that gets on is not what kills. Alone
 * it is through once it has published a token or is finished; it goes on then, and the next one is tried
 * beside it. Thread: the loop's. */
#ifndef SERVER_RECOVERY_H
#define SERVER_RECOVERY_H

#include <stdbool.h>
#include <stdint.h>

#include "link/link.h"

enum { RECOVERY_WINDOW_S = 600, RECOVERY_DEATHS_MAX = 64 };

/* A slot's last death. */
struct victim {
    uint64_t serial; /* of the slot's request; another: the slot is another's by now */
    int32_t num_deaths, num_published, begin, end;
};

struct recovery {
    struct link *link;
    int32_t max_deaths;
    uint64_t deaths_ns[RECOVERY_DEATHS_MAX]; /* the last ones, a ring */
    uint64_t num_deaths;
    struct victim *victims; /* [num_slots] */
    int32_t alone;          /* the slot that is tried alone; -1: none */
};

int recovery_init(struct recovery *r, struct link *link, int32_t max_deaths, struct error *err) must_check;
void recovery_deinit(struct recovery *r);

/* The engine is gone; accuses: of what it was computing. Resets the link, fails what killed thrice. False:
 * too many deaths. */
bool recovery_on_death(struct recovery *r, bool accuses, uint64_t now_ns) must_check;
/* An engine is READY again, or has published something: hands over whose turn it is. */
void recovery_on_progress(struct recovery *r);

#endif

/* watch.h - the checks of each turn; what they hook into is in watch.c. */
#ifndef TESTS_SIM_WATCH_H
#define TESTS_SIM_WATCH_H

#include "kvcache/block_manager.h"
#include "sim/sim.h"

/* device.c calls it for each launched step. */
void watch_step(const struct step *step);
/* The loop is between two callbacks. */
void watch_loop(void);
/* device.c: whoever reads a block that was given back gets rubbish. */
void device_poison_freed(const struct block_manager *blocks);
/* Whether the failure was that of taking a history. */
bool device_history_failed(void);

#endif

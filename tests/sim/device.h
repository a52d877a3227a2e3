/* device.h - the model that an engine runs and its device; one at a time, and gone with its engine. */
#ifndef TESTS_SIM_DEVICE_H
#define TESTS_SIM_DEVICE_H

#include "engine/engine.h"
#include "kvcache/block_manager.h"

/* How fast it is and when it fails is another matter with each engine. */
void sim_device_open(int engine_idx);
/* Of the open device, made when first asked for. */
struct model *sim_device_model(const struct engine_options *options);
void sim_device_close(void);
/* Its process is dead: nothing is given back. */
void sim_device_forget(void);

/* Whether the engine has seen the oldest step run since this was called last. */
bool sim_device_take_look(void);
/* Whoever reads a block that was given back gets rubbish. */
void sim_device_spoil_freed(const struct block_manager *blocks);
/* Whether the failure was that of taking a history. */
bool sim_device_history_failed(void);

#endif

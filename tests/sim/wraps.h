/* wraps.h - functions that the linker redirects to the simulator (-Wl,--wrap): a call of f becomes
 * __wrap_f, and __real_f is what it was. Only calls between object files are redirected. */
#ifndef TESTS_SIM_WRAPS_H
#define TESTS_SIM_WRAPS_H

#include <pthread.h>
#include <sys/types.h>

#include "engine/engine_internal.h"
#include "scheduler/scheduler.h"
#include "server/api/request_log.h"
#include "server/connection.h"
#include "server/listener.h"
#include "server/mask_turns.h"
#include "server/recovery.h"
#include "server/server.h"
#include "text/grammar/forecast.h"
#include "text/grammar/mask.h"

#define WRAP(result, name, ...)                                                                              \
    result __real_##name(__VA_ARGS__);                                                                       \
    result __wrap_##name(__VA_ARGS__)

/* heap.c */
WRAP(void *, malloc, size_t bytes);
WRAP(void *, calloc, size_t count, size_t bytes);
WRAP(void *, realloc, void *p, size_t bytes);
WRAP(void *, aligned_alloc, size_t alignment, size_t bytes);
WRAP(void, free, void *p);
WRAP(char *, strdup, const char *text);
WRAP(char *, strndup, const char *text, size_t n);
/* threads.c */
WRAP(int, pthread_create, pthread_t *thread, const pthread_attr_t *attributes, void *(*main)(void *),
     void *argument);
WRAP(int, pthread_join, pthread_t thread, void **result);
WRAP(int, pthread_setname_np, pthread_t thread, const char *name);
WRAP(int, pthread_mutex_lock, pthread_mutex_t *mutex);
WRAP(int, pthread_mutex_unlock, pthread_mutex_t *mutex);
WRAP(long, syscall, long number, const void *address, int operation, uint32_t value,
     const struct timespec *timeout);
WRAP(ssize_t, getrandom, void *to, size_t bytes, unsigned flags);
/* world.c */
WRAP(_Noreturn void, _exit, int exit_code);
WRAP(void, api_on_loaded, struct server *server, const char *const *names, const double *seconds, int num);
WRAP(void, api_abort_all, struct server *server, int http_status, const char *type, const char *message);
WRAP(void, metrics_reset, void);
WRAP(void, recovery_deinit, struct recovery *r);
/* policy.c */
WRAP(enum schedule_result, scheduler_plan, struct scheduler *s, struct plan *plan);
WRAP(int, scheduler_add, struct scheduler *s, const struct sequence_input *input, int32_t *seq_id);
/* pace.c */
WRAP(void, link_sleep_at_most, struct link *l, uint32_t seen, uint64_t timeout_ns);
/* watch.c */
WRAP(void, block_manager_on_evict, struct block_manager *bm, void (*evict)(void *context, int32_t block_id),
     void *context);
WRAP(void, scheduler_finish, struct scheduler *s, int32_t seq_id, bool reusable);
WRAP(bool, engine_step, struct engine *e);
WRAP(void, link_submit, struct link *l, int32_t slot_idx);
WRAP(struct request_slot *, request_slots_get, struct request_slots *s, int32_t slot_idx);
WRAP(int, request_slots_acquire, struct request_slots *s, int32_t count, int32_t *slot_ids);
WRAP(void, request_slots_release, struct request_slots *s, int32_t slot_idx);
WRAP(void, request_log_write, const struct request_record *record);
WRAP(bool, exchange_write, struct exchange *x, const char *bytes, size_t n);
WRAP(void, http_metrics_count_cut_off, void);
WRAP(void, http_metrics_count_displaced, void);
WRAP(int, listener_open, struct listener *l, struct server *server, const struct route *routes,
     struct error *err);
WRAP(void, engine_publish_entry, struct engine *e, struct plan_entry *entry,
     const struct sample_result *rows);
WRAP(void, link_want_mask, struct link *l, int32_t slot_idx);
WRAP(uint64_t, mask_maker_work, const struct mask_maker *m);
WRAP(void, mask_turns_take, struct mask_turns *t, struct mask_turn *turn, uint64_t work, size_t num);
WRAP(void, scheduler_append_token, struct scheduler *s, int32_t seq_id);
/* drafts.c */
WRAP(int32_t, drafter_num_worth, const struct drafter *d, double saved_us, double cost_us, int32_t max);
WRAP(int32_t, drafter_write, struct drafter *d, int32_t *tokens, int32_t max);
WRAP(int32_t, drafter_found, const struct drafter *d, const int32_t *tokens, int32_t *ids, int32_t max);
WRAP(size_t, forecast_text, const struct matcher *m, const struct spacing *s, char *out);
/* judge.c */
WRAP(bool, recovery_on_death, struct recovery *r, bool accuses, uint64_t ns);
WRAP(void, link_hand_over, struct link *l, int32_t slot_idx);
WRAP(void, link_let_through, struct link *l);
WRAP(void, link_finish_waiting, struct link *l, int32_t slot_idx, enum finish_reason reason,
     const char *error_text);

#undef WRAP

#endif

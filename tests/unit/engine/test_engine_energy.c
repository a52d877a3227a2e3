/* Who gets what the device uses: the counter is a file of the test's, which moves while the host waits for a step. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "engine/energy_meter.h"
#include "unit/engine/fake_engine.h"

enum { MAX_MODEL_LEN = 128, NUM_SLOTS = 16, STEP_UJ = 4000 };

static const int32_t prompt[MAX_MODEL_LEN] = {5, 9, 17, 33, 2, 8, 20, 41, 7, 30};
static char folder[64];
static uint64_t used_uj;
static struct energy_meter *meter;
static struct rig rig;

static void put(const char *file, const char *text)
{
    char path[128];
    snprintf(path, sizeof path, "%s/intel-rapl:0/%s", folder, file);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void use(uint64_t uj)
{
    char text[32];
    used_uj += uj;
    snprintf(text, sizeof text, "%llu\n", (unsigned long long)used_uj);
    put("energy_uj", text);
}

static void use_for_a_step(void)
{
    use(STEP_UJ);
}

static int set_up(void **state)
{
    (void)state;
    char zone[96];
    struct error err;
    snprintf(folder, sizeof folder, "/tmp/test_energy.XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(zone, sizeof zone, "%s/intel-rapl:0", folder);
    mkdir(zone, 0700);
    put("name", "package-0\n");
    put("max_energy_range_uj", "1000000000\n");
    use(0);
    assert_int_equal(energy_meter_open_cpu(folder, &meter, &err), 0);
    const struct fake_options fake = {.num_steps_in_flight = 1,
                                      .prefill_decode_equal = true,
                                      .num_blocks = 64,
                                      .fail_at_step = -1,
                                      .on_wait = use_for_a_step};
    rig = rig_create(&fake,
                     (struct engine_options){.max_model_len = MAX_MODEL_LEN,
                                             .max_num_seqs = 8,
                                             .max_num_batched_tokens = 64,
                                             .max_num_logits = 16,
                                             .energy_meter = meter},
                     NUM_SLOTS);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    char command[96];
    rig_destroy(&rig);
    energy_meter_close(meter);
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

static int32_t submit(int32_t num_prompt, int32_t max_tokens)
{
    struct request_slot_input input = input_default(num_prompt, max_tokens);
    input.ignore_eos = true;
    return rig_submit(&rig, &input, prompt);
}

static uint64_t uj_of(int32_t slot_idx)
{
    return atomic_load(&request_slots_get(rig.slots, slot_idx)->energy_uj);
}

static uint64_t uj_of_all(void)
{
    struct link_stats stats;
    link_stats(rig.link, &stats);
    return stats.energy_uj;
}

static void by_tokens(void **state)
{
    (void)state;
    int32_t a = submit(30, 1), b = submit(10, 1);
    rig_run(&rig);
    assert_int_equal(uj_of(a), 3000);
    assert_int_equal(uj_of(b), 1000);
    assert_int_equal(uj_of_all(), STEP_UJ);
}

static void what_is_used_in_between_is_nobodys(void **state)
{
    (void)state;
    int32_t a = submit(10, 5);
    rig_run(&rig);
    use(1000000);
    int32_t b = submit(20, 3);
    rig_run(&rig);
    assert_int_equal(uj_of(a), 5 * STEP_UJ);
    assert_int_equal(uj_of(b), 3 * STEP_UJ);
    assert_int_equal(uj_of_all(), 8 * STEP_UJ);
}

/* Known before the slot is handed back, also when that is early. */
static void of_what_is_cancelled(void **state)
{
    (void)state;
    int32_t a = submit(10, 50);
    assert_true(engine_step(rig.engine));
    link_cancel(rig.link, a);
    rig_run(&rig);
    assert_int_equal(rig_finish_reason(&rig, a), FINISH_CANCELLED);
    assert_int_equal(uj_of(a), STEP_UJ);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(by_tokens, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_used_in_between_is_nobodys, set_up, tear_down),
        cmocka_unit_test_setup_teardown(of_what_is_cancelled, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

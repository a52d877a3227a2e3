/* Counters of energy, of a powercap folder that the test writes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/energy_meter.h"

static char folder[64];

static int set_up(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/test_energy.XXXXXX");
    assert_non_null(mkdtemp(folder));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    char command[96];
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

static void put(const char *zone, const char *file, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, zone);
    mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/%s/%s", folder, zone, file);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void add_zone(const char *zone, const char *name, const char *range, const char *energy)
{
    put(zone, "name", name);
    put(zone, "max_energy_range_uj", range);
    put(zone, "energy_uj", energy);
}

static struct energy_meter *opened(void)
{
    struct energy_meter *m;
    struct error err;
    if (energy_meter_open_cpu(folder, &m, &err)) fail_msg("%s", err.text);
    return m;
}

static void packages_and_memory(void **state)
{
    (void)state;
    add_zone("intel-rapl:0", "package-0\n", "1000000\n", "100\n");
    add_zone("intel-rapl:0:0", "core\n", "1000000\n", "100\n");
    add_zone("intel-rapl:0:1", "dram\n", "1000000\n", "100\n");
    add_zone("intel-rapl:1", "package-1\n", "1000000\n", "100\n");
    add_zone("intel-rapl:2", "psys\n", "1000000\n", "100\n");
    add_zone("intel-rapl-mmio:0", "package-0\n", "1000000\n", "100\n");
    struct energy_meter *m = opened();
    assert_int_equal(energy_meter_read_uj(m), 0);
    put("intel-rapl:0", "energy_uj", "110\n");
    put("intel-rapl:0:0", "energy_uj", "5000\n");
    put("intel-rapl:0:1", "energy_uj", "103\n");
    put("intel-rapl:1", "energy_uj", "107\n");
    put("intel-rapl:2", "energy_uj", "9000\n");
    put("intel-rapl-mmio:0", "energy_uj", "9000\n");
    assert_int_equal(energy_meter_read_uj(m), 20);
    assert_int_equal(energy_meter_read_uj(m), 20);
    energy_meter_close(m);
}

static void begins_anew(void **state)
{
    (void)state;
    add_zone("intel-rapl:0", "package-0\n", "262143328850\n", "262143328800\n");
    struct energy_meter *m = opened();
    put("intel-rapl:0", "energy_uj", "25\n");
    assert_int_equal(energy_meter_read_uj(m), 75);
    put("intel-rapl:0", "energy_uj", "30\n");
    assert_int_equal(energy_meter_read_uj(m), 80);
    energy_meter_close(m);
}

static void what_is_no_number_any_more_adds_nothing(void **state)
{
    (void)state;
    add_zone("intel-rapl:0", "package-0\n", "1000\n", "100\n");
    struct energy_meter *m = opened();
    const char *const texts[] = {"", "\n", "-5\n", "many\n", "12 13\n", "99999999999999999999999\n"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        put("intel-rapl:0", "energy_uj", texts[i]);
        assert_int_equal(energy_meter_read_uj(m), 0);
    }
    put("intel-rapl:0", "energy_uj", "150"); /* and goes on where it was */
    assert_int_equal(energy_meter_read_uj(m), 50);
    energy_meter_close(m);
}

static void refused(const char *path, const char *words)
{
    struct energy_meter *m;
    struct error err = {0};
    assert_true(energy_meter_open_cpu(path, &m, &err) < 0);
    if (!strstr(err.text, words)) fail_msg("%s", err.text);
}

static void folders_that_are_none(void **state)
{
    (void)state;
    refused("/no/such/folder", "/no/such/folder: No such file or directory");
    refused(folder, "shows no package of a CPU");
    add_zone("intel-rapl:0:0", "core\n", "1000\n", "100\n");
    refused(folder, "shows no package of a CPU");
    add_zone("intel-rapl:0", "package-0\n", "many\n", "100\n");
    refused(folder, "intel-rapl:0: its energy_uj or max_energy_range_uj is no number");
    add_zone("intel-rapl:0", "package-0\n", "1000\n", "");
    refused(folder, "is no number");
    char path[128];
    snprintf(path, sizeof path, "%s/intel-rapl:0/energy_uj", folder);
    unlink(path);
    refused(folder, "intel-rapl:0/energy_uj: No such file");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(packages_and_memory, set_up, tear_down),
        cmocka_unit_test_setup_teardown(begins_anew, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_no_number_any_more_adds_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(folders_that_are_none, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

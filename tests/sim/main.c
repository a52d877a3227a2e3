/* main.c - runs seed after seed, each in a process of its own, until enough steps were checked.
 *
 *   sim [--steps N] [--first SEED]          many seeds; fails at the first that fails, shrunk
 *   sim --seed SEED [--only 1,2] [--without a,b]   one seed, told line by line
 *
 * A script is a seed, which of its clients take part, and which features are turned off; the same script
 * gives the same trace, which is checked every now and then. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "sim/sim.h"

enum { HANG_SECONDS = 60, REPEAT_EVERY = 40, SHRINK_RUNS_MAX = 400, FULL_RUN_STEPS = 500000 };

struct outcome {
    bool failed;
    char message[1200]; /* the last line that it said */
};

static struct report total;

static double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void read_last_line(FILE *file, char *out, size_t size)
{
    char line[1200];
    rewind(file);
    out[0] = '\0';
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        bool says_why = !strncmp(line, "sim: ", 5) || !strncmp(line, "flashd: ", 8) ||
                        strstr(line, "runtime error: ") || strstr(line, "ERROR: AddressSanitizer");
        if (says_why) snprintf(out, size, "%s", line);
    }
}

/* Runs a script in a child; report says what it did. */
static struct outcome run(const struct script *script)
{
    struct outcome outcome = {0};
    FILE *errors = tmpfile();
    assert_always(errors);
    memset(report, 0, sizeof *report);
    fflush(NULL);
    pid_t child = fork();
    assert_always(child >= 0);
    if (child == 0) {
        if (!script->verbose) dup2(fileno(errors), STDERR_FILENO);
        alarm(HANG_SECONDS);
        world_init(script);
        world_run();
    }
    int status;
    waitpid(child, &status, 0);
    outcome.failed = !WIFEXITED(status) || WEXITSTATUS(status) != 0 || !report->complete;
    if (outcome.failed) {
        read_last_line(errors, outcome.message, sizeof outcome.message);
        int signal_number = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
        if (signal_number == SIGALRM || !outcome.message[0])
            snprintf(outcome.message, sizeof outcome.message, "sim: ended by signal %d (%s)", signal_number,
                     strsignal(signal_number));
    }
    fclose(errors);
    return outcome;
}

static void add_up(void)
{
    total.num_steps += report->num_steps;
    total.num_turns += report->num_turns;
    total.num_requests += report->num_requests;
    total.num_tokens += report->num_tokens;
    total.num_deaths += report->num_deaths;
    total.most_preemptions = max_of(total.most_preemptions, report->most_preemptions);
    for (int i = 0; i < NUM_MARKERS; i++) total.markers[i] += report->markers[i];
}

/* ---- scripts as text ---- */

/* As make takes it. */
static void print_script(const struct script *s, int num_clients)
{
    bool first = true;
    printf("make sim SEED=%llu", (unsigned long long)s->seed);
    for (int i = 0; i < num_clients; i++) {
        if (s->left_out[i]) continue;
        printf("%s%d", first ? " ONLY=" : ",", i);
        first = false;
    }
    if (first) printf(" ONLY=none");
    first = true;
    for (int i = 0; i < NUM_FEATURES; i++) {
        if (!(s->features_off & UINT64_C(1) << i)) continue;
        printf("%s%s", first ? " WITHOUT=" : ",", feature_names[i]);
        first = false;
    }
    printf("\n");
}

static void parse_only(struct script *s, const char *list)
{
    for (int i = 0; i < CLIENTS_MAX; i++) s->left_out[i] = true;
    if (!strcmp(list, "none")) return;
    for (char *end; *list; list = *end ? end + 1 : end) {
        unsigned long i = strtoul(list, &end, 10);
        assert_always(i < CLIENTS_MAX && end > list);
        s->left_out[i] = false;
    }
}

static void parse_without(struct script *s, char *list)
{
    for (char *name = strtok(list, ","); name; name = strtok(NULL, ",")) {
        int i = 0;
        while (i < NUM_FEATURES && strcmp(feature_names[i], name) != 0) i++;
        if (i == NUM_FEATURES) fprintf(stderr, "sim: no feature %s\n", name);
        assert_always(i < NUM_FEATURES);
        s->features_off |= UINT64_C(1) << i;
    }
}

/* ---- shrinking ---- */

/* The place that a message names: a smaller script must fail at the same one. */
static size_t place_length(const char *message)
{
    const char *colon = strchr(message, ':');
    for (int i = 0; i < 2 && colon; i++) colon = strchr(colon + 1, ':');
    return colon ? (size_t)(colon - message) : strlen(message);
}

static bool still_fails(const struct script *s, const char *message, int *runs_left)
{
    if (--*runs_left < 0) return false;
    struct outcome o = run(s);
    return o.failed && !strncmp(o.message, message, place_length(message));
}

/* Leaves out clients, in ever smaller groups, for as long as it still fails. */
static void shrink_clients(struct script *s, int num_clients, const char *message, int *runs_left)
{
    for (int group = max_of(num_clients / 2, 1);; group /= 2) {
        for (int begin = 0; begin < num_clients; begin += group) {
            struct script smaller = *s;
            bool any = false;
            for (int i = begin; i < min_of(begin + group, num_clients); i++) {
                any |= !s->left_out[i];
                smaller.left_out[i] = true;
            }
            if (any && still_fails(&smaller, message, runs_left)) *s = smaller;
        }
        if (group <= 1) return;
    }
}

static void shrink_features(struct script *s, const char *message, int *runs_left)
{
    for (int i = 0; i < NUM_FEATURES; i++) {
        struct script smaller = *s;
        smaller.features_off |= UINT64_C(1) << i;
        if (still_fails(&smaller, message, runs_left)) *s = smaller;
    }
}

static void report_failure(const struct script *script, const char *message, bool shrinks)
{
    struct script s = *script;
    int num_clients = report->num_clients, runs_left = SHRINK_RUNS_MAX;
    printf("FAILED: seed %llu after %llu steps of its own, %llu in all, at %.3f ms: %s\n",
           (unsigned long long)s.seed, (unsigned long long)report->num_steps,
           (unsigned long long)(total.num_steps + report->num_steps), (double)report->now_ns / 1e6, message);
    fflush(stdout);
    if (!shrinks) return;
    shrink_clients(&s, num_clients, message, &runs_left);
    shrink_features(&s, message, &runs_left);
    shrink_clients(&s, num_clients, message, &runs_left);
    run(&s);
    printf("shrunk to %llu steps: ", (unsigned long long)report->num_steps);
    print_script(&s, num_clients);
}

/* ---- running ---- */

static int run_verbosely(struct script *s)
{
    s->verbose = true;
    struct outcome o = run(s);
    printf("%s: %llu steps, %llu turns, %llu requests, trace %016llx\n", o.failed ? "FAILED" : "ok",
           (unsigned long long)report->num_steps, (unsigned long long)report->num_turns,
           (unsigned long long)report->num_requests, (unsigned long long)report->trace);
    return o.failed;
}

static int check_repetition(const struct script *s)
{
    uint64_t trace_before = report->trace;
    run(s);
    if (report->trace == trace_before) return 0;
    printf("FAILED: seed %llu gives %016llx, then %016llx\n", (unsigned long long)s->seed,
           (unsigned long long)trace_before, (unsigned long long)report->trace);
    return 1;
}

static int print_markers(bool all_wanted)
{
    int num_missing = 0;
    for (int i = 0; i < NUM_MARKERS; i++) {
        printf("%-28s %12llu%s\n", marker_names[i], (unsigned long long)total.markers[i],
               total.markers[i] ? "" : "   NEVER REACHED");
        num_missing += total.markers[i] == 0;
    }
    return all_wanted ? num_missing : 0;
}

static int run_many(uint64_t num_steps, uint64_t first_seed, bool shrinks)
{
    double begin = seconds_now();
    uint64_t seed = first_seed, num_repeated = 0;
    for (; total.num_steps < num_steps; seed++) {
        struct script s = {.seed = seed};
        struct outcome o = run(&s);
        if (o.failed) {
            report_failure(&s, o.message, shrinks);
            printf("0 passed, 1 failed\n");
            return 1;
        }
        uint64_t millions = total.num_steps / 1000000;
        add_up();
        if (total.num_steps / 1000000 > millions && total.num_steps < num_steps) {
            printf("%llu steps, seed %llu\n", (unsigned long long)total.num_steps, (unsigned long long)seed);
            fflush(stdout);
        }
        if (seed % REPEAT_EVERY != 0) continue;
        if (check_repetition(&s)) return 1;
        num_repeated++;
    }
    int num_missing = print_markers(num_steps >= FULL_RUN_STEPS);
    printf("%llu steps in %llu turns, %llu requests, %llu tokens, %llu deaths, %llu seeds from %llu, %llu of "
           "them "
           "twice with equal traces, at most %llu preemptions of one, %.1f s\n",
           (unsigned long long)total.num_steps, (unsigned long long)total.num_turns,
           (unsigned long long)total.num_requests, (unsigned long long)total.num_tokens,
           (unsigned long long)total.num_deaths, (unsigned long long)(seed - first_seed),
           (unsigned long long)first_seed, (unsigned long long)num_repeated,
           (unsigned long long)total.most_preemptions, seconds_now() - begin);
    printf("%d passed, %d failed\n", num_missing == 0, num_missing > 0);
    return num_missing > 0;
}

int main(int argc, char **argv)
{
    uint64_t num_steps = 1000000, first_seed = 1;
    struct script one = {0};
    bool shrinks = true;
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (!strcmp(argv[i], "--no-shrink")) {
            shrinks = false;
            continue;
        }
        if (!strcmp(argv[i], "--steps")) num_steps = (uint64_t)strtod(value, NULL);
        if (!strcmp(argv[i], "--first")) first_seed = strtoull(value, NULL, 10);
        if (!strcmp(argv[i], "--seed")) one.seed = strtoull(value, NULL, 10);
        if (!strcmp(argv[i], "--only")) parse_only(&one, value);
        if (!strcmp(argv[i], "--without")) parse_without(&one, argv[i + 1]);
        i++;
    }
    report = mmap(NULL, sizeof *report, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_always(report != MAP_FAILED);
    return one.seed ? run_verbosely(&one) : run_many(num_steps, first_seed, shrinks);
}

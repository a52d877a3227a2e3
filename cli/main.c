/* main.c - the command line: serve, chat, inspect, bench, check, verify, replay, help, version. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/check.h"
#include "base/log.h"
#include "base/log_writer.h"
#include "config/api_keys.h"
#include "config/closest.h"
#include "config/config.h"
#include "config/manual.h"
#include "files/file_map.h"
#include "kernels/device.h"
#include "files/model_path.h"
#include "cli/bench.h"
#include "cli/bench_attention.h"
#include "cli/chat.h"
#include "cli/check.h"
#include "cli/command.h"
#include "cli/inspect.h"
#include "cli/process.h"
#include "cli/replay.h"
#include "cli/verify.h"
#include "engine/run.h"
#include "server/engine_process.h"
#include "server/server.h"
#include "base/version.h"

extern char **environ;

static const struct command commands[] = {
    {"serve", "MODEL [options]",
     "serve a GGUF file, a Hugging Face directory, or ORG/NAME of the Hugging Face cache", NULL, true},
    {"chat", "MODEL [options] | --url URL [--model NAME] [--api-key-file FILE]",
     "chat on the terminal with a model, or with a running server", chat_flags, true},
    {"inspect", "MODEL [options]",
     "the model's shape, the cost of a token, what fits on this machine, and its roofline", NULL, true},
    {"bench attention", "[options]",
     "every algorithm of the FlashAttention family on this machine: time, bytes, roofline, as a table or SVG",
     bench_attention_flags, false},
    {"bench", "serve [URL] [options]",
     "load-test an OpenAI-compatible server (default: http://127.0.0.1:8000): latency, throughput, goodput",
     bench_flags, false},
    {"check", "URL [options]", "test what clients rely on of an OpenAI-compatible server, as a table",
     check_flags, false},
    {"verify", "RECEIPT --request FILE --model MODEL | --url URL",
     "computes an answer again from its receipt (a file, or - ) and its request, and says whether it is the "
     "same",
     verify_flags, false},
    {"replay", "JOURNAL --request ID | --all, --model MODEL | --url URL",
     "shows a past answer again, or checks all that a journal holds", replay_flags, false},
    {"help", "", "every option; -h: the commands alone", NULL, false},
    {"version", "", "what runs", NULL, false},
    {"--print-example-config", "", "a YAML file with every option", NULL, false},
    {"--print-man", "", "the manual page flashd(1)", NULL, false},
    {"--print-completion", "bash|zsh|fish", "the completion of that shell", NULL, false},
    {.name = NULL},
};

static void print_help(FILE *out, bool every_option)
{
    fprintf(out, "flashd %s - a network inference server for language models\n\nusage:\n", flashd_version());
    for (const struct command *c = commands; c->name; c++)
        fprintf(out, "  flashd %s%s%s\n      %s\n", c->name, c->arguments[0] ? " " : "", c->arguments,
                c->help);
    fprintf(out, "\nEvery option may also stand in --config FILE (YAML, name: value) and in the environment\n"
                 "(FLASHD_MAX_NUM_SEQS=8), MODEL as model and FLASHD_MODEL; the command line wins over the\n"
                 "environment, and that over the file.\n");
    if (every_option) {
        fprintf(out, "\n");
        config_print_help(out);
        for (const struct command *c = commands; c->name; c++) {
            if (!c->flags) continue;
            fprintf(out, "\nOf flashd %s alone:\n", c->name);
            flags_print_help(c->flags, out);
        }
    } else {
        fprintf(out, "flashd --help lists them.\n");
    }
}

/* Of commands that begin with the word and have options of their own; false: there is none. */
static bool print_command_help(const char *word, FILE *out)
{
    bool found = false;
    for (const struct command *c = commands; c->name; c++) {
        size_t n = strcspn(c->name, " ");
        if (n != strlen(word) || strncmp(c->name, word, n) != 0 || !c->flags || c->serves) continue;
        fprintf(out, "%sflashd %s %s\n  %s\n\n", found ? "\n" : "", c->name, c->arguments, c->help);
        flags_print_help(c->flags, out);
        found = true;
    }
    return found;
}

/* Requests that bring no seed draw from this one: the same again with --seed. */
static int choose_seed(struct config *config, struct error *err)
{
    uint64_t bits;
    if (config->seed >= 0) return STATUS_OK;
    if (getrandom(&bits, sizeof bits, 0) != sizeof bits)
        return error_set(err, STATUS_IO, "no random numbers: %s", strerror(errno));
    config->seed = (int64_t)(bits >> 1);
    log_info("requests without a seed draw from --seed %lld", (long long)config->seed);
    return STATUS_OK;
}

/* Ends when the log is written, or nobody reads it. */
static int serve(struct config *config)
{
    struct error err = {0};
    if (model_path_find(config->model, &config->model_path, &err) || choose_seed(config, &err) ||
        process_raise_limits(&err) || process_start_workers(&err) || log_writer_start(&err)) {
        log_error("%s", err.text);
        return EXIT_FAILURE;
    }
    int code = server_run(config, engine_run_thread);
    log_writer_stop();
    return code;
}

/* Which process this one is an engine of. */
static pid_t front_pid;

static int run_engine(struct config *config)
{
    struct error err = {0};
    if (log_writer_start(&err)) {
        log_error("%s", err.text);
        return EXIT_FAILURE;
    }
    int code = engine_run_process(ENGINE_LINK_FD, ENGINE_WAKE_FD, front_pid, config);
    log_writer_stop();
    return code;
}

static int inspect(struct config *config)
{
    struct error err = {0};
    if (!model_path_find(config->model, &config->model_path, &err)) return inspect_run(config, true);
    return command_fail(&err, EXIT_FAILURE);
}

static int run_command(int (*command)(struct config *), int num_args, char **args, char **environment)
{
    struct config config;
    struct error err = {0};
    int code = EXIT_FAILURE;
    if (config_init(&config, &err) || config_load(&config, num_args, args, environment, &err)) {
        code = command_fail(&err, EXIT_USAGE);
    } else if (!config.model) {
        error_set(&err, STATUS_INVALID,
                  "a MODEL is expected: a GGUF file, a Hugging Face directory, or a name in the Hugging Face "
                  "cache");
        code = command_fail(&err, EXIT_USAGE);
    } else {
        api_keys_hide(&config, num_args, args);
        log_configure(log_level_of(config.log_level), !strcmp(config.log_format, "json"));
        file_map_guard_process();
        device_set_environment();
        code = command(&config);
    }
    config_deinit(&config);
    return code;
}

static bool has_argument(const char *wanted, int num_args, char **args)
{
    for (int i = 0; i < num_args; i++)
        if (!strcmp(args[i], wanted)) return true;
    return false;
}

static int fail_unknown(const char *command)
{
    const char *names[array_length(commands) + 1] = {"--help", "--version"}; /* and those of commands */
    for (size_t i = 0; commands[i].name; i++) names[i + 2] = commands[i].name;
    const char *meant = closest_word(command, strlen(command), names, array_length(names));
    fprintf(stderr, "flashd: there is no command \"%s\"; ", command);
    if (meant)
        fprintf(stderr, "did you mean \"%s\"?\n", meant);
    else if (access(command, F_OK) == 0)
        fprintf(stderr, "did you mean \"serve %s\"?\n", command);
    else
        fprintf(stderr, "flashd --help lists them\n");
    return EXIT_USAGE;
}

static int print_completion(const char *shell)
{
    struct error err = {0};
    return manual_print_completion(shell, commands, stdout, &err) ? command_fail(&err, EXIT_USAGE)
                                                                  : EXIT_SUCCESS;
}

static int run(int argc, char **argv)
{
    const char *command = argc > 1 ? argv[1] : "";
    bool every_option = has_argument("--help", argc - 1, argv + 1) || !strcmp(command, "help");
    bool asks_short = has_argument("-h", argc - 1, argv + 1);
    if ((every_option || asks_short) && print_command_help(command, stdout)) return EXIT_SUCCESS;
    if (every_option || asks_short || argc < 2) {
        print_help(argc < 2 ? stderr : stdout, every_option);
        return argc < 2 ? EXIT_USAGE : EXIT_SUCCESS;
    }
    if (!strcmp(command, "--version") || !strcmp(command, "version")) {
        printf("flashd %s (%s)\n", flashd_version(), flashd_commit());
        return EXIT_SUCCESS;
    }
    if (!strcmp(command, "--print-example-config")) {
        config_print_example(stdout);
        return EXIT_SUCCESS;
    }
    if (!strcmp(command, "--print-man")) {
        manual_print(commands, flashd_version(), stdout);
        return EXIT_SUCCESS;
    }
    if (!strcmp(command, "--print-completion")) return print_completion(argc > 2 ? argv[2] : "");
    if (!strcmp(command, "serve")) return run_command(serve, argc - 2, argv + 2, environ);
    if (!strcmp(command, "chat")) return chat_run(argc - 2, argv + 2);
    if (!strcmp(command, "bench")) return bench_run(argc - 2, argv + 2);
    if (!strcmp(command, "check")) return check_run(argc - 2, argv + 2);
    if (!strcmp(command, "verify")) return verify_run(argc - 2, argv + 2);
    if (!strcmp(command, "replay")) return replay_run(argc - 2, argv + 2);
    if (!strcmp(command, "inspect")) return run_command(inspect, argc - 2, argv + 2, environ);
    if (!strcmp(command, ENGINE_COMMAND) && argc > 3) {
        front_pid = (pid_t)atoi(argv[2]);
        return run_command(run_engine, argc - 3, argv + 3, &(char *){NULL});
    }
    return fail_unknown(command);
}

/* A reader that has gone has read what it wanted; else what was printed is there, or the command has failed. */
static int finish_output(int code)
{
    struct pollfd out = {.fd = STDOUT_FILENO};
    errno = 0;
    bool written = fflush(stdout) == 0 && !ferror(stdout);
    int problem = errno;
    if (written || (poll(&out, 1, 0) > 0 && (out.revents & POLLERR))) return code;
    fprintf(stderr, "flashd: standard output: %s\n",
            problem ? strerror(problem) : "not all could be written");
    return code == EXIT_SUCCESS ? EXIT_FAILURE : code;
}

int main(int argc, char **argv)
{
    if (!process_open_standard_descriptors()) return EXIT_FAILURE;
    process_settle_signals();
    return finish_output(run(argc, argv));
}

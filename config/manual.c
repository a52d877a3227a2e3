#include "config/manual.h"

#include <string.h>

#include "base/check.h"
#include "config/option_table.h"

/* ---- man ---- */

static void print_roff(const char *text, FILE *out)
{
    for (; *text; text++) {
        if (*text == '-')
            fputs("\\-", out);
        else if (*text == '\\')
            fputs("\\e", out);
        else
            fputc(*text, out);
    }
}

/* A paragraph: its tag, an argument, and what it is. \& keeps a first dot from being a request. */
static void print_entry(const char *tag, const char *argument, const char *help, FILE *out)
{
    fputs(".TP\n\\fB", out);
    print_roff(tag, out);
    fputs("\\fR", out);
    if (argument[0]) fputs(" \\fI", out);
    print_roff(argument, out);
    if (argument[0]) fputs("\\fR", out);
    fputs("\n\\&", out);
    print_roff(help, out);
    fputs("\n", out);
}

/* An option of `serve` or one of a command. */
struct entry {
    const char *name, *unit, *help;
    bool is_switch; /* has --no-NAME, too */
};

static struct entry entry_of_option(const struct option *o)
{
    return (struct entry){o->name, o->unit, o->help, o->type == OPTION_FLAG};
}

static struct entry entry_of_flag(const struct flag *f)
{
    return (struct entry){f->name, f->unit, f->help, f->type == FLAG_SWITCH};
}

static void print_man_entry(struct entry e, FILE *out)
{
    char tag[128];
    snprintf(tag, sizeof tag, "--%s%s%s", e.name, e.is_switch ? ", --no-" : "", e.is_switch ? e.name : "");
    print_entry(tag, e.unit, e.help, out);
}

static void print_option(const struct option *o, FILE *out)
{
    if (o->type == OPTION_SECTION)
        fprintf(out, ".SS %s\n", o->name);
    else
        print_man_entry(entry_of_option(o), out);
}

static void print_flags(const struct command *c, FILE *out)
{
    fprintf(out, ".SS Of \\fBflashd %s\\fR alone\n", c->name);
    for (const struct flag *f = c->flags; f->name; f++) print_man_entry(entry_of_flag(f), out);
}

void manual_print(const struct command *commands, const char *version, FILE *out)
{
    fprintf(
        out,
        ".TH FLASHD 1 \"\" \"flashd %s\" \"User Commands\"\n.SH NAME\nflashd \\- a network inference server "
        "for language models\n.SH SYNOPSIS\n.B flashd\n\\fIcommand\\fR [\\fIoptions\\fR]\n.SH COMMANDS\n",
        version);
    for (const struct command *c = commands; c->name; c++) print_entry(c->name, c->arguments, c->help, out);
    fputs(
        ".SH OPTIONS\nEvery option may also stand in the file of \\fB\\-\\-config\\fR (YAML, name: value) "
        "and in the environment\n(FLASHD_MAX_NUM_SEQS=8), MODEL as model and FLASHD_MODEL. The command line "
        "wins over the environment, and that over the file.\n",
        out);
    print_entry("--config", "file", "YAML file of options: name: value", out);
    for (size_t i = 0; i < NUM_OPTIONS; i++) print_option(&options[i], out);
    for (const struct command *c = commands; c->name; c++)
        if (c->flags) print_flags(c, out);
    fputs(".SH EXIT STATUS\n", out);
    print_entry("0", "", "It ended as it was told to.", out);
    print_entry("1", "",
                "It could not start; of bench and check: not every request completed, or not all holds.",
                out);
    print_entry("2", "", "The command line is wrong.", out);
    print_entry("70", "", "The device failed, or the engine died too often: to be started again.", out);
}

/* ---- shells ---- */

static bool has_choices(struct entry e)
{
    return strchr(e.unit, '|');
}

static bool is_file(struct entry e)
{
    return !strcmp(e.unit, "file") || !strcmp(e.unit, "path");
}

/* text with the bytes of special after a backslash, and quotes as a single-quoted word of the shell has them. */
static void print_quoted(const char *text, const char *special, const char *quote, FILE *out)
{
    for (; *text; text++) {
        if (*text == '\'') {
            fputs(quote, out);
            continue;
        }
        if (strchr(special, *text)) fputc('\\', out);
        fputc(*text, out);
    }
}

static void print_choices(const char *unit, FILE *out)
{
    for (const char *c = unit; *c; c++) fputc(*c == '|' ? ' ' : *c, out);
}

/* The same values behind the same name, whichever command it belongs to. */
static void print_bash_values(struct entry e, FILE *out)
{
    if (!has_choices(e)) return;
    fprintf(out, "    --%s) mapfile -t COMPREPLY < <(compgen -W \"", e.name);
    print_choices(e.unit, out);
    fputs("\" -- \"$word\"); return ;;\n", out);
}

static void print_bash_name(struct entry e, FILE *out)
{
    fprintf(out, " --%s", e.name);
    if (e.is_switch) fprintf(out, " --no-%s", e.name);
}

/* A command's own options go behind those of `serve`, or take their place. */
static void print_bash_flags(const struct command *c, FILE *out)
{
    fprintf(out, "    \"%s \"*)\n", c->name);
    fprintf(out, "        mapfile -t %sCOMPREPLY < <(compgen -W \"", c->serves ? "-O ${#COMPREPLY[@]} " : "");
    for (const struct flag *f = c->flags; f->name; f++) print_bash_name(entry_of_flag(f), out);
    fputs("\" -- \"$word\") ;;\n", out);
}

static void print_bash(const struct command *commands, FILE *out)
{
    fputs("_flashd() {\n    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}\n"
          "    COMPREPLY=()\n    case $before in\n",
          out);
    for (size_t i = 0; i < NUM_OPTIONS; i++)
        if (options[i].type != OPTION_SECTION) print_bash_values(entry_of_option(&options[i]), out);
    for (const struct command *c = commands; c->name; c++)
        for (const struct flag *f = c->flags; f && f->name; f++) print_bash_values(entry_of_flag(f), out);
    fputs("    esac\n    if [[ $word == -* ]]; then\n        mapfile -t COMPREPLY < <(compgen -W \"--config",
          out);
    for (size_t i = 0; i < NUM_OPTIONS; i++)
        if (options[i].type != OPTION_SECTION) print_bash_name(entry_of_option(&options[i]), out);
    fputs("\" -- \"$word\")\n    elif ((COMP_CWORD == 1)); then\n        mapfile -t COMPREPLY < <(compgen -W "
          "\"",
          out);
    for (const struct command *c = commands; c->name; c++)
        if (!strchr(c->name, ' ')) fprintf(out, " %s", c->name);
    fputs("\" -- \"$word\")\n    else\n        mapfile -t COMPREPLY < <(compgen -f -- \"$word\")\n    fi\n   "
          " [[ $word == -* ]] || return 0\n    case \"${COMP_WORDS[*]:1} \" in\n",
          out);
    for (const struct command *c = commands; c->name; c++)
        if (c->flags) print_bash_flags(c, out);
    fputs("    esac\n}\ncomplete -o filenames -F _flashd flashd\n", out);
}

static void print_zsh_entry(struct entry e, FILE *out)
{
    fprintf(out, "  '--%s%s[", e.name, e.is_switch ? "" : "=");
    print_quoted(e.help, "[]:\\", "'\\''", out);
    fputs("]", out);
    if (e.is_switch) {
        fprintf(out, "' \\\n  '--no-%s[not: %s]", e.name, e.name);
    } else if (has_choices(e)) {
        fputs(":value:(", out);
        print_choices(e.unit, out);
        fputs(")", out);
    } else {
        fprintf(out, ":%s:%s", e.unit, is_file(e) ? "_files" : "");
    }
    fputs("' \\\n", out);
}

/* A command's own options go before those of `serve`, or take their place. */
static void print_zsh_flags(const struct command *c, FILE *out)
{
    fprintf(out, "\"%s \"*) own=(\n", c->name);
    for (const struct flag *f = c->flags; f->name; f++) print_zsh_entry(entry_of_flag(f), out);
    fprintf(out, "  )%s ;;\n", c->serves ? "" : "; _arguments $own '*:argument:'; return");
}

static void print_zsh(const struct command *commands, FILE *out)
{
    fputs("#compdef flashd\nlocal -a own\ncase \"${words[2,-1]} \" in\n", out);
    for (const struct command *c = commands; c->name; c++)
        if (c->flags) print_zsh_flags(c, out);
    fputs("esac\n_arguments $own \\\n  '--config=[YAML file of options]:file:_files' \\\n", out);
    for (size_t i = 0; i < NUM_OPTIONS; i++)
        if (options[i].type != OPTION_SECTION) print_zsh_entry(entry_of_option(&options[i]), out);
    fputs("  '1:command:((", out);
    for (const struct command *c = commands; c->name; c++) {
        if (strchr(c->name, ' ')) continue;
        fprintf(out, "%s%s\\:\"", c == commands ? "" : " ", c->name);
        print_quoted(c->help, ":\\", "'\\''", out);
        fputs("\"", out);
    }
    fputs("))' \\\n  '*:model:_files'\n", out);
}

/* condition: where it is offered; "": everywhere. */
static void print_fish_entry(struct entry e, const char *condition, FILE *out)
{
    fprintf(out, "complete -c flashd%s -l %s -d '", condition, e.name);
    print_quoted(e.help, "\\", "\\'", out);
    fputs("'", out);
    if (has_choices(e)) {
        fputs(" -x -a '", out);
        print_choices(e.unit, out);
        fputs("'", out);
    } else if (!e.is_switch) {
        fputs(is_file(e) ? " -r -F" : " -x", out);
    }
    fputs("\n", out);
    if (e.is_switch) fprintf(out, "complete -c flashd%s -l no-%s -d 'not: %s'\n", condition, e.name, e.name);
}

static void print_fish_flags(const struct command *c, FILE *out)
{
    char condition[128];
    const char *space = strrchr(c->name, ' '), *word = space ? space + 1 : c->name;
    snprintf(condition, sizeof condition, " -n '__fish_seen_subcommand_from %s'", word);
    for (const struct flag *f = c->flags; f->name; f++) print_fish_entry(entry_of_flag(f), condition, out);
}

static void print_fish(const struct command *commands, FILE *out)
{
    for (const struct command *c = commands; c->name; c++) {
        if (strchr(c->name, ' ')) continue;
        fprintf(out, "complete -c flashd -n __fish_use_subcommand -f -a %s -d '", c->name);
        print_quoted(c->help, "\\", "\\'", out);
        fputs("'\n", out);
    }
    fputs("complete -c flashd -l config -d 'YAML file of options' -r -F\n", out);
    for (size_t i = 0; i < NUM_OPTIONS; i++)
        if (options[i].type != OPTION_SECTION) print_fish_entry(entry_of_option(&options[i]), "", out);
    for (const struct command *c = commands; c->name; c++)
        if (c->flags) print_fish_flags(c, out);
}

int manual_print_completion(const char *shell, const struct command *commands, FILE *out, struct error *err)
{
    static const struct {
        const char *name;
        void (*print)(const struct command *commands, FILE *out);
    } shells[] = {{"bash", print_bash}, {"zsh", print_zsh}, {"fish", print_fish}};
    for (size_t i = 0; i < array_length(shells); i++) {
        if (strcmp(shells[i].name, shell) != 0) continue;
        shells[i].print(commands, out);
        return STATUS_OK;
    }
    return error_set(err, STATUS_INVALID, "--print-completion: bash, zsh or fish is expected, not \"%s\"",
                     shell);
}

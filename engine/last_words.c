#include "engine/last_words.h"

#include <signal.h>
#include <stddef.h>

#include "base/check.h"

static struct link *link_of_process;  /* handlers have no context */
static void (*write_log)(int number); /* what an abort did before */

/* si_code is positive for what the processor raised; abort() is the program's own. The action is back at its
 * default: the signal comes again at the return, or at once. */
static void on_fault(int number, siginfo_t *info, void *context)
{
    (void)context;
    if (info->si_code > 0 || number == SIGABRT) link_note_fault(link_of_process);
    if (number == SIGABRT && write_log != SIG_DFL) write_log(number);
    raise(number);
}

void last_words_prepare(struct link *link)
{
    /* SIGBUS is the files' (files/file_map.c): a model file that is cut is nobody's request. */
    static const int numbers[] = {SIGSEGV, SIGFPE, SIGILL, SIGABRT};
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = (int)(SA_SIGINFO | SA_RESETHAND)};
    link_of_process = link;
    write_log = signal(SIGABRT, SIG_DFL);
    for (size_t i = 0; i < array_length(numbers); i++) sigaction(numbers[i], &action, NULL);
}

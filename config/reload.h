/* reload.h - the same sources read again while the server runs: what may change then does, and the rest is named.
 *
 * API keys keep their places in the list, which requests in flight know: one that is gone is revoked, a new one is
 * appended, and the terms behind each (weight, quotas, name, admin) are the new ones. A server that began without
 * keys stays without, and one with keys keeps some. Thread: the loop's; what other threads read does not change. */
#ifndef CONFIG_RELOAD_H
#define CONFIG_RELOAD_H

#include "config/config.h"

/* Names of options, each with "--" before it, separated by blanks; "": none. */
struct config_changes {
    char applied[512];
    char at_next_start[512];
};

/* From config's own command line, the file that it names and environment. On failure nothing has changed. */
int config_reload(struct config *config, char *const *environment, struct config_changes *changes,
                  struct error *err) must_check;

#endif

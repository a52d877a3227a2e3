#include "base/control_group.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

void control_group_climb(const char *mount, const char *path,
                         void (*visit)(void *context, const char *folder), void *context)
{
    char group[PATH_MAX], folder[3 * PATH_MAX];
    snprintf(group, sizeof group, "%s", path);
    for (;;) {
        snprintf(folder, sizeof folder, "%s%s", mount, group);
        visit(context, folder);
        char *slash = strrchr(group, '/');
        if (!slash) return;
        *slash = '\0';
    }
}

/* Whether a list such as "cpu,cpuacct" has it. */
static bool is_listed(const char *controllers, const char *controller)
{
    char list[PATH_MAX + 2], wanted[32];
    snprintf(list, sizeof list, ",%s,", controllers);
    snprintf(wanted, sizeof wanted, ",%s,", controller);
    return strstr(list, wanted) != NULL;
}

/* Lines read "0::/path" (version 2) or "4:cpu,cpuacct:/path" (version 1, mounted under the controllers'
 * names). */
void control_group_walk(const char *file, const char *mount, const char *controller,
                        void (*visit)(void *context, const char *folder), void *context)
{
    FILE *f = fopen(file, "re");
    char line[PATH_MAX + 256], folder[2 * PATH_MAX];
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path) continue;
        *path++ = '\0';
        bool is_second = *++controllers == '\0';
        if (!is_second && !is_listed(controllers, controller)) continue;
        snprintf(folder, sizeof folder, "%s%s%s", mount, is_second ? "" : "/", controllers);
        control_group_climb(folder, path, visit, context);
    }
    if (f) fclose(f);
}

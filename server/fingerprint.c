#include "server/fingerprint.h"

#include "base/version.h"

/* Another build or other kernels may give other bits. */
void fingerprint_append(struct buffer *out, const char *device)
{
    bool gap = true;
    buffer_printf(out, "fp_%s_%s", flashd_version(), flashd_commit());
    for (const char *p = device; *p && *p != ','; p++) { /* how many threads there are changes nothing */
        bool is_plain = (*p >= '0' && *p <= '9') || ((*p | 0x20) >= 'a' && (*p | 0x20) <= 'z');
        if (is_plain && gap) buffer_append_char(out, '_');
        if (is_plain) buffer_append_char(out, *p);
        gap = *p == ' ' || (gap && !is_plain);
    }
}

#include "base/version.h"

#ifndef FLASHD_VERSION
#define FLASHD_VERSION "unknown"
#endif
#ifndef FLASHD_COMMIT
#define FLASHD_COMMIT "unknown"
#endif

const char *flashd_version(void)
{
    return FLASHD_VERSION;
}

const char *flashd_commit(void)
{
    return FLASHD_COMMIT;
}

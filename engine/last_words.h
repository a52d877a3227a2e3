/* last_words.h - what an engine process says as it dies: whether it died of what it was computing. A signal
 * that somebody sent says nothing about the requests on board; a bad address, a broken invariant and the like
 * do. */
#ifndef ENGINE_LAST_WORDS_H
#define ENGINE_LAST_WORDS_H

#include "link/link.h"

/* From now on a fault of this process is noted in the link before it ends the process. Once. */
void last_words_prepare(struct link *link);

#endif

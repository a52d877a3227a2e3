#include "server/api/codec.h"

void codec_append(struct buffer *out, enum event_kind kind, struct answer *a, const struct event *e)
{
    if (a->codec->events[kind]) a->codec->events[kind](out, a, e);
}

/* absent.h - what clients of the protocols ask for and this server does not have: why, and what there is instead. Thread: any. */
#ifndef SERVER_ABSENT_H
#define SERVER_ABSENT_H

/* A sentence without its end, about path or something above it; NULL: nothing is known of it. */
const char *absent_reason(const char *path);

#endif

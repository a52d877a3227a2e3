/* verify.h - whether a format reads back what the template writes. */
#ifndef TEXT_TOOLS_VERIFY_H
#define TEXT_TOOLS_VERIFY_H

#include "text/tools/format.h"
#include "text/tools/probe.h"

/* Renders answers with none to three calls and arguments of all kinds and parses them. */
bool tool_format_verify(const struct tool_format *f, const struct probe *p);

#endif

#include "text/grammar/byte_group.h"

#include <string.h>

#include "base/check.h"

static const char *const members[] = {"abcdef",     "ghijklmnopqrstuvwxyz",
                                      "ABCDEF",     "GHIJKLMNOPQRSTUVWXYZ",
                                      "0123456789", " ",
                                      "\t\n\r",     "\"",
                                      "\\",         "_",
                                      "-",          ".",
                                      "/",          ":",
                                      ",",          "@",
                                      "+",          "*",
                                      "()",         "[]",
                                      "{}",         "<>",
                                      "=",          "&|",
                                      "#",          "'",
                                      "!?",         ";",
                                      "$%^~`"};

uint32_t byte_group(uint8_t byte)
{
    for (uint32_t group = 0; byte && group < array_length(members); group++)
        if (strchr(members[group], byte)) return group;
    return GROUP_CONTROL;
}

uint32_t byte_groups_inside(const struct byte_set *set)
{
    /* 0 to 8, 11, 12, 14 to 31 in the first word, 127 in the second */
    static const struct byte_set control = {{0xFFFFD9FF, (uint64_t)1 << 63, 0, 0}};
    uint32_t groups = 0;
    for (uint32_t group = 0; group < array_length(members); group++) {
        const char *c = members[group];
        while (*c && byte_set_has(set, (unsigned char)*c)) c++;
        if (!*c) groups |= 1u << group;
    }
    if ((set->words[0] & control.words[0]) == control.words[0] && set->words[1] & control.words[1])
        groups |= 1u << GROUP_CONTROL;
    return groups;
}

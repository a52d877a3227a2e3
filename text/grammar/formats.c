/* The formats that JSON Schema defines, as regular expressions of the whole text. They may be narrower than
 * the RFCs, never wider. */
#include <string.h>

#include "base/check.h"
#include "text/grammar/schema.h"

#define MONTH_DAY                                                                                            \
    "(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|"   \
    "1[0-9]|2[0-8]))"
#define YEAR "(?:[0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)"
#define LEAP_YEAR "(?:[0-9][0-9](?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
#define FULL_DATE "(?:" YEAR "-" MONTH_DAY "|" LEAP_YEAR "-02-29)"
/* Leap seconds at offset 0 alone. */
#define FRACTION "(?:\\.[0-9]{1,9})?"
#define TIME                                                                                                 \
    "(?:(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]" FRACTION "(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])|" \
    "23:59:60" FRACTION "(?:[Zz]|[+-]00:00))"
#define DATE_TIME FULL_DATE "[Tt]" TIME
#define OCTET "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
#define IPV4 OCTET "(?:\\." OCTET "){3}"
#define H16 "[0-9A-Fa-f]{1,4}"
#define LS32 "(?:" H16 ":" H16 "|" IPV4 ")"
#define IPV6                                                                                                 \
    "(?:(?:" H16 ":){6}" LS32 "|::(?:" H16 ":){5}" LS32 "|(?:" H16 ")?::(?:" H16 ":){4}" LS32 "|(?:(?:" H16  \
    ":){0,1}" H16 ")?::(?:" H16 ":){3}" LS32 "|(?:(?:" H16 ":){0,2}" H16 ")?::(?:" H16 ":){2}" LS32          \
    "|(?:(?:" H16 ":){0,3}" H16 ")?::" H16 ":" LS32 "|(?:(?:" H16 ":){0,4}" H16 ")?::" LS32 "|(?:(?:" H16    \
    ":){0,5}" H16 ")?::" H16 "|(?:(?:" H16 ":){0,6}" H16 ")?::)"
/* At most 39 characters in each of at most 6 labels: a name is no longer than 253, and no label begins as
 * Punycode. */
#define LABEL "[A-Za-z0-9](?:-?[A-Za-z0-9]){0,19}"
#define HOSTNAME LABEL "(?:\\." LABEL "){0,5}"
#define ATOM "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
#define EMAIL ATOM "(?:\\." ATOM ")*@" HOSTNAME
/* more: what an IRI has beside a URI's characters. */
#define PCHAR(more) "(?:[A-Za-z0-9._~!$&'()*+,;=:@" more "-]|%[0-9A-Fa-f]{2})"
#define PCHAR_NO_COLON(more) "(?:[A-Za-z0-9._~!$&'()*+,;=@" more "-]|%[0-9A-Fa-f]{2})"
#define REG_NAME(more) "(?:[A-Za-z0-9._~!$&'()*+,;=" more "-]|%[0-9A-Fa-f]{2})*"
#define USER(more) "(?:(?:[A-Za-z0-9._~!$&'()*+,;=:" more "-]|%[0-9A-Fa-f]{2})*@)?"
#define AUTHORITY(more) USER(more) REG_NAME(more) "(?::[0-9]*)?"
#define QUERY(more) "(?:\\?(?:" PCHAR(more) "|[/?])*)?(?:#(?:" PCHAR(more) "|[/?])*)?"
#define SEGMENTS(more) "(?:/" PCHAR(more) "*)*"
#define BEHIND_SCHEME(more)                                                                                  \
    "(?://" AUTHORITY(more) SEGMENTS(more) "|/(?:" PCHAR(more) "+" SEGMENTS(more) ")?|"
#define URI(more)                                                                                            \
    "[A-Za-z][A-Za-z0-9+.-]*:" BEHIND_SCHEME(more) PCHAR(more) "+" SEGMENTS(more) "|)" QUERY(more)
#define REFERENCE(more)                                                                                      \
    "(?:" URI(more) "|" BEHIND_SCHEME(more) PCHAR_NO_COLON(more) "+" SEGMENTS(more) "|)" QUERY(more) ")"
#define UCS "\\u00A0-\\uD7FF\\uF900-\\uFDCF\\uFDF0-\\uFFEF\\u{10000}-\\u{1FFFD}"
#define DURATION                                                                                             \
    "P(?:[0-9]{1,9}W|(?:[0-9]{1,9}Y(?:[0-9]{1,9}M(?:[0-9]{1,9}D)?)?|[0-9]{1,9}M(?:[0-9]{1,9}D)?|[0-9]{1,9}"  \
    "D)(?:T(?:" DURATION_TIME "))?|T(?:" DURATION_TIME "))"
#define DURATION_TIME "[0-9]{1,9}H(?:[0-9]{1,9}M(?:[0-9]{1,9}S)?)?|[0-9]{1,9}M(?:[0-9]{1,9}S)?|[0-9]{1,9}S"
/* Regular expressions that every dialect has: groups two deep, no counted repetition that could be out of order. */
#define REGEX_CHARACTER "[A-Za-z0-9 _@#%&=:;,<>~!'\"/-]"
#define REGEX_CLASS "\\[\\^?(?:" REGEX_CHARACTER_IN_CLASS "|a-z|A-Z|0-9|\\\\[dws])+\\]"
#define REGEX_CHARACTER_IN_CLASS "[A-Za-z0-9 _@#%=:;,<>!'\"/.*+?$(){}]"
#define REGEX_ATOM REGEX_CHARACTER "|\\.|\\\\[dDwWsS.*+?$^|(){}\\[\\]\\\\/]|" REGEX_CLASS
#define REGEX_COUNT "(?:[*+?]|\\{(?:0|[1-9][0-9]?)(?:,|)\\}|\\{[01],[1-9][0-9]?\\})?"
#define REGEX_TERMS(atom) "(?:\\^?(?:(?:" atom ")" REGEX_COUNT ")*\\$?)"
#define REGEX_TEXT(atom) REGEX_TERMS(atom) "(?:\\|" REGEX_TERMS(atom) ")*"
#define REGEX_GROUP(inside) "\\((?:\\?:)?(?:" inside ")\\)"
#define REGEX                                                                                                \
    REGEX_TEXT(REGEX_ATOM "|" REGEX_GROUP(REGEX_TEXT(REGEX_ATOM "|" REGEX_GROUP(REGEX_TEXT(REGEX_ATOM)))))
#define UUID(version, variant)                                                                               \
    "[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-" version "[0-9A-Fa-f]{3}-" variant "[0-9A-Fa-f]{3}-[0-9A-Fa-f]{12}"

static const struct {
    const char *name;
    const char *pattern;
} formats[] = {
    {"date", FULL_DATE},
    {"time", TIME},
    {"date-time", DATE_TIME},
    {"duration", DURATION},
    {"email", EMAIL},
    {"idn-email", EMAIL},
    {"hostname", HOSTNAME},
    {"idn-hostname", HOSTNAME},
    {"ipv4", IPV4},
    {"ipv6", IPV6},
    {"uri", URI("")},
    {"iri", URI(UCS)},
    {"uri-reference", REFERENCE("")},
    {"iri-reference", REFERENCE(UCS)},
    {"uri-template",
     "(?:[!#$&()*+,\\-./0-9:;=?@A-Z\\[\\]_a-z~]|%[0-9A-Fa-f]{2}|\\{[+#./"
     ";?&]?[A-Za-z0-9_]+(?:\\*|:[1-9][0-9]{0,3})?(?:,[A-Za-z0-9_]+(?:\\*|:[1-9][0-9]{0,3})?)*\\})*"},
    {"uuid", UUID("[0-9A-Fa-f]", "[0-9A-Fa-f]")},
    {"uuid1", UUID("1", "[89abAB]")}, /* to uuid8: what Pydantic makes of its types, and checks */
    {"uuid3", UUID("3", "[89abAB]")},
    {"uuid4", UUID("4", "[89abAB]")},
    {"uuid5", UUID("5", "[89abAB]")},
    {"uuid6", UUID("6", "[89abAB]")},
    {"uuid7", UUID("7", "[89abAB]")},
    {"uuid8", UUID("8", "[89abAB]")},
    {"json-pointer", "(?:/(?:[^/~]|~[01])*)*"},
    {"relative-json-pointer", "(?:0|[1-9][0-9]*)(?:#|(?:/(?:[^/~]|~[01])*)*)"},
    {"regex", REGEX},
};

const char *schema_format_pattern(const char *name)
{
    for (size_t i = 0; i < array_length(formats); i++)
        if (!strcmp(formats[i].name, name)) return formats[i].pattern;
    return NULL;
}

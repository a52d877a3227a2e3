/* ebnf.h - the notation of grammar_from_ebnf, a subset of GBNF and of W3C's EBNF.
 *
 *   root   ::= item ("," " "? item)* end     rules; the first one is "root", or else the first of the text
 *   item   ::= "text\n" | [a-zA-Z_0-9] | [^"\\] | . | /regular expression/ | name | ( ... )
 *   suffix     * + ? {3} {3,} {3,5}
 *   # a comment, until the end of the line
 *
 * A rule ends where the next "name ::=" begins. Escapes are those of regular expressions. Names: letters,
 * digits,
 * - and _. Left recursion is refused; so is a rule that is not there. Bounds: EBNF_NODES_MAX parts,
 * EBNF_DEPTH_MAX nested groups, repetitions up to EBNF_REPEAT_MAX, of a class REGEX_REPEAT_MAX. */
#ifndef TEXT_GRAMMAR_EBNF_H
#define TEXT_GRAMMAR_EBNF_H

enum { EBNF_NODES_MAX = 1 << 18, EBNF_DEPTH_MAX = 64, EBNF_REPEAT_MAX = 2000, EBNF_RULES_MAX = 1 << 14 };

#endif

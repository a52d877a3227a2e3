/* form.h - forms that answers must have, and limits of tokens, told to the server in its own notations and to the checks as plain
 * predicates over a text: what the grammar engine makes of them is compared with the obvious. */
#ifndef TESTS_SIM_FORM_H
#define TESTS_SIM_FORM_H

#include "sim/sim.h"

enum { NUM_FORMS = 6 }; /* 0: none */

/* The members of the body that ask for it. */
const char *form_members(int form);

/* Which tokens may come behind these, as the bits of a bit_set; 0: the answer has ended, or, where its form is not whole, fails. */
uint64_t form_allowed(int form, const struct request_slot_input *input, const int32_t *generated,
                      int32_t num_generated);

bool form_is_whole(int form, const int32_t *generated, int32_t num_generated);

#endif

/* reference.h - attention in double precision, untiled: what every row of the lab is checked against. Thread: any. */
#ifndef LAB_ATTENTION_REFERENCE_H
#define LAB_ATTENTION_REFERENCE_H

#include "lab/attention/problem.h"

/* Of one head; all row-major, [Nq][d] and [Nk][d]. Gradients are of sum(out * d_out). */
struct reference {
    double *out, *d_q, *d_k, *d_v;
};

/* backward: gradients, too; NULL otherwise. */
int reference_init(struct reference *r, const struct problem *p, int head, bool backward,
                   struct error *err) must_check;
void reference_free(struct reference *r);

/* The largest difference of any element of the head, over the largest element of the reference. */
double reference_forward_error(const struct reference *r, const struct problem *p, int head);
double reference_backward_error(const struct reference *r, const struct problem *p, int head);

#endif

#include "engine/step_pace.h"

#include <math.h>

static const double FIRST_HOST_US = 1000, FIRST_DOUBT = 0.2;
static const double LEAST_HOST_US = 200, LEAST_DOUBT = 0.04;
static const double MOST_HOST_US = 100000, MOST_DOUBT = 1;
static const double SPARE = 1.25;   /* times what was seen */
static const double FORGET = 0.99;  /* with each step */
static const double TOO_LATE = 1.5; /* times as early from now on */

void step_pace_init(struct step_pace *p)
{
    *p = (struct step_pace){.host_us = FIRST_HOST_US, .doubt = FIRST_DOUBT};
}

double step_pace_wait_us(const struct step_pace *p, double predicted_us)
{
    return predicted_us * (1 - p->doubt) - p->host_us;
}

static double follow(double now, double seen, double least, double most)
{
    return fmin(fmax(fmax(SPARE * seen, FORGET * now), least), most);
}

void step_pace_learn(struct step_pace *p, double host_us, double predicted_us, double us, bool ran_dry)
{
    double early = predicted_us > 0 ? 1 - us / predicted_us : 0;
    if (ran_dry) early = fmax(early, TOO_LATE * p->doubt / SPARE);
    p->host_us = follow(p->host_us, host_us, LEAST_HOST_US, MOST_HOST_US);
    p->doubt = follow(p->doubt, early, LEAST_DOUBT, MOST_DOUBT);
}

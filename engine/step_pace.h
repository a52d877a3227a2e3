/* step_pace.h - when to plan the next step of a device that takes a second one while it computes the first: as late as it can
 * be, so that who comes meanwhile is in it, and never so late that the device has nothing to do.
 *
 * The time by which the host has to be earlier than the predicted end of the running step has two parts, each learned from
 * what was seen: what the host takes from when it wanted to begin until the step is begun (waking up, planning, launching), and
 * the share of a step by which predictions were too long. Both rise at once with what is seen and are forgotten slowly, so that
 * it is the worst of the last hundred steps that counts. Microseconds. Thread: its owner's. */
#ifndef ENGINE_STEP_PACE_H
#define ENGINE_STEP_PACE_H

#include <stdbool.h>

struct step_pace {
    double host_us; /* until a step is begun */
    double doubt;   /* share of a predicted step */
};

void step_pace_init(struct step_pace *p);
/* For how long after its beginning a step of predicted_us keeps the device busy for certain, and leaves the host the time to
 * begin another; below 0: no time is certain. */
double step_pace_wait_us(const struct step_pace *p, double predicted_us);
/* A step was begun host_us after it was to be planned, beside one that took us, or less when it had ended already: then the
 * device ran dry. */
void step_pace_learn(struct step_pace *p, double host_us, double predicted_us, double us, bool ran_dry);

#endif

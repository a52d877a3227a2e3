/* control_group.h - where the limits of this process's control groups stand. Thread: any. */
#ifndef BASE_CONTROL_GROUP_H
#define BASE_CONTROL_GROUP_H

/* Calls visit with the folder of each group that file (as /proc/self/cgroup) lists for the controller, such as "cpu", and
 * with those of its parents, up to the mount's own: a container sees its group there. Version 2's groups are below mount, those
 * of version 1 below the folder of their controllers. A folder need not be there. */
void control_group_walk(const char *file, const char *mount, const char *controller,
                        void (*visit)(void *context, const char *folder), void *context);

/* The groups of version 2, or of one controller of version 1, that path names below mount. */
void control_group_climb(const char *mount, const char *path,
                         void (*visit)(void *context, const char *folder), void *context);

#endif

/* group.h - several devices that compute as one: a device whose operations are those of its members.
 *
 * Each member has a share of the rows of the large matrices, and of the heads of attention with their K and V, and all have all
 * of the rest: norms, embeddings, the residual stream, what is drawn. Behind a product whose rows are shared out the members give each
 * other their columns of the results (share in device.h), behind attention their heads', and between the two products of experts theirs. So every sum is one member's, over all of
 * K in the order that one device alone has, and the bits of an answer do not depend on how many devices there are: nothing is added up
 * across devices.
 *
 *   x -- qkv of its heads -- rotation, K/V -- attention --> all <-- o, its rows --> all <-- norm, gate and up, its rows --> all <-- down ...
 *
 * Whoever uses the group sees one device: an address of device memory is the first member's, and each allocation is one of each
 * member, so that the others' addresses follow from it. Sizes (free_bytes, gpu_bytes, kv_pool_bytes) are sums over members.
 *
 * Thread: as any device. Members' operations are queued one member after the other, by one thread. */
#ifndef KERNELS_GROUP_GROUP_H
#define KERNELS_GROUP_GROUP_H

#include "kernels/device.h"

enum { GROUP_MEMBERS_MAX = 8 };

typedef int group_open_member(const char *name, const struct device_options *options, struct device **out,
                              struct error *err);

/* options->num_devices of them, on CUDA the ordinals from options->cuda_device on. */
int group_open(group_open_member *open_member, const char *name, const struct device_options *options,
               struct device **out, struct error *err) must_check;

#endif

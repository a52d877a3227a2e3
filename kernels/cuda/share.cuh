/* share.cuh - a GPU as a member of a group (kernels/group). */
#ifndef KERNELS_CUDA_SHARE_CUH
#define KERNELS_CUDA_SHARE_CUH

#include "kernels/cuda/device.cuh"

extern "C" {
#include "kernels/group/group.h"
}

/* Entries of the table. */
int cuda_join(struct device *d, struct device *const *members, int num, int idx, struct error *err);
void cuda_select(struct device *d);
void cuda_share(struct device *d, const struct batch *b, enum row_set rows, void *const *to, const void *from,
                int64_t row_bytes);
void cuda_share_end(struct device *d);
/* What cuda_share_end ends, too. Of little, rows that are elsewhere on each member: from[rows[i]] goes to where the others have the i-th. */
bool cuda_share_is_little(int32_t num_rows, int64_t row_bytes);
void cuda_share_placed(struct cuda_device *d, int32_t num_rows, void *to, const void *from, int64_t row_bytes,
                       const int32_t *rows);
/* All come as far. */
void cuda_share_nothing(struct cuda_device *d);
/* A step begins. */
void cuda_share_step(struct cuda_device *d);
/* Whether members that are closed later are on its GPU, too. */
bool cuda_is_needed_by_others(const struct cuda_device *d);
void cuda_membership_forget(struct cuda_device *d);

/* Of the device's group: members, and how many. */
int cuda_members(const struct cuda_device *d, struct device *const **members);

#endif

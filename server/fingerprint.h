/* fingerprint.h - what of the program and its kernels decides about bits: "fp_0.1.0_1f902a1b2c3d_cpu_avx512". */
#ifndef SERVER_FINGERPRINT_H
#define SERVER_FINGERPRINT_H

#include "base/buffer.h"

/* device: link_facts' text. */
void fingerprint_append(struct buffer *out, const char *device);

#endif

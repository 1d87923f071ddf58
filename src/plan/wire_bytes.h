// Bytes of gradients in transport, which may be rounded or filtered.
#pragma once

#include "src/plan/plan.h"

namespace owt {

// Bytes of one gradient element in transport.
int64_t gradient_size(const Plan& plan);
int64_t activation_bytes(const Plan& plan, int64_t features);  // bytes of this many features of one row in transport
// Bytes of the gradient of activations that take `activation_bytes` in transport, if ranks sum it.
int64_t input_sum_bytes(const Plan& plan, int64_t activation_bytes);
// Whether ranks drop or round parts of a gradient before they send it; the bytes of a bucket that usually remain.
bool filters_gradients(const Plan& plan);
int64_t filtered_bytes(const Plan& plan, const Bucket& bucket);
// Whether transport changes the values of gradients. Running averages must stay exact, so they have their own buckets.
bool rounds_gradients(const Plan& plan);
// Bytes of the whole bucket; with filters, the usual number.
int64_t wire_bytes(const Plan& plan, const Bucket& bucket);
int64_t trained_tensors(const Plan& plan, const Bucket& bucket);
// The values of the bucket, and the optimizer state if there is any.
int64_t averaged_elements(const Plan& plan, const Bucket& bucket);

}  // namespace owt

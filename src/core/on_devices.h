// Functions that both kernels and the host call.
#pragma once

#ifdef __CUDACC__
#define OWT_ON_DEVICES __host__ __device__
#else
#define OWT_ON_DEVICES
#endif

// Functions that kernels call as well as the host.
#pragma once

#ifdef __CUDACC__
#define OWT_ON_DEVICES __host__ __device__
#else
#define OWT_ON_DEVICES
#endif

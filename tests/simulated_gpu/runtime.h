// A GPU made of host threads, for tests: CUDA's runtime, cuBLASLt, cuDNN, NCCL and nvJPEG as one library that replaces
// theirs at link time. It follows CUDA's rules, not its speed.
//
// - A stream is a host thread with a queue, so that work that is not ordered by events really runs at the same time.
// - Device memory is accessible to the streams' threads only while they work; at other times an access by the host
//   crashes (SIGSEGV). New device memory holds 0xff bytes: NaN as float or bfloat16. cudaFree reports writes past the
//   end of an allocation. Under AddressSanitizer device memory is plain memory, which the sanitizer checks.
// - Calls with the default stream are errors: all work must have an explicit stream.
//
// Environment: OWT_SIMULATED_GPUS         number of devices (1)
//              OWT_SIMULATED_GPU_MEMORY   MiB of each device (8192)
//              OWT_SIMULATED_GPU_JITTER   a seed: operations start after small random delays
//              OWT_SIMULATED_GPU_GUARD=0  lets the host access device memory
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace simulated_gpu {

void set_devices(int count);  // 0: a machine without a GPU
int devices();
void set_driver(int version);         // with a driver for a CUDA below CUDART_VERSION no GPU can be used
void set_capability(int capability);  // 90 at first; kernels are compiled for 75 (7.5) and newer
void set_memory(size_t bytes);        // for each device, at most 16 GiB; existing allocations stay
void set_l2_cache(size_t bytes);      // 64 KiB at first: small, because measurements overwrite it repeatedly

// The source of work: a kernel, or the call that queued it.
struct Origin {
  const char* call;
  const void* kernel = nullptr;
};
// For the libraries: queues work on a stream, or records it if the stream is being captured. Recorded work runs once
// for each launch of the graph. Device memory is accessible while it runs.
cudaError_t enqueue(cudaStream_t stream, Origin origin, std::function<void()> work);

// A node with work. The name is a kernel's name, "add_bias<float>", or the call that queued other work.
struct GraphNode {
  std::string name;
  size_t stream;  // 0: the stream whose capture began; others in the order in which they joined
  int priority;   // priority of that stream, if the graph keeps it; else 0
};
// What each executable graph holds that has not been destroyed, in the order in which they were made; the nodes in the
// order of the recording.
std::vector<std::vector<GraphNode>> live_graphs();

size_t zeroed_bytes();  // bytes set to 0 by cudaMemsetAsync in this process

}  // namespace simulated_gpu

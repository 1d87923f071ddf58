// The GPUs this process can use.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/core/device.h"

namespace owt {

struct Gpu {
  int index = 0;
  std::string name, pci_bus;
  int capability = 0;  // 90 for compute capability 9.0
  int multiprocessors = 0;
  int64_t memory = 0;  // bytes
};

struct Gpus {
  std::vector<Gpu> list;
  std::string why_none;         // reason for an empty list
  std::string driver, runtime;  // versions, like "13.0"; empty if unknown
};

Gpus find_gpus();           // never throws
bool gpu_present();         // asked once
bool nvidia_driver_here();  // indicates a GPU, whether or not this program can use it
void use_gpu(int index);    // for everything the calling host thread allocates and queues from then on
// Throws Error if the program has no code for the calling thread's GPU, or the GPU no instructions for the precision.
void check_gpu(Precision precision);
// Bytes that are free once the driver's own memory for this process is allocated.
int64_t free_memory_of_gpu(int index);

// The back-ends' implementations of the functions above.
Gpus find_gpus(Cpu);
Gpus find_gpus(Cuda);
void use_gpu(Cpu, int index);
void use_gpu(Cuda, int index);
void check_gpu(Cpu, Precision precision);
void check_gpu(Cuda, Precision precision);
int64_t free_memory_of_gpu(Cpu, int index);
int64_t free_memory_of_gpu(Cuda, int index);

}  // namespace owt

#include <iostream>

#include "src/comm/processes.h"
#include "src/core/gpus.h"
#include "src/core/threads.h"
#include "src/system/cpu_level.h"
#include "src/system/log.h"
#include "tools/commands.h"

namespace owt {

int command_devices(const Arguments& arguments) {
  Options options("owt devices", "Lists the devices of this machine that can train: CPU, GPUs, and the MPI library.");
  if (!options.parse(arguments)) {
    std::cout << options.help();
    return 0;
  }
  std::cout << format("cpu    {} core{}, instructions of {}\n", hardware_cores(), hardware_cores() == 1 ? "" : "s",
                      name_of(cpu_level()));
  const Gpus gpus = find_gpus();
  for (const Gpu& gpu : gpus.list)
    std::cout << format("cuda:{} {}, {:.1f} GiB, compute capability {}.{}, {} multiprocessors, PCI {}\n", gpu.index,
                        gpu.name, static_cast<double>(gpu.memory) / (1 << 30), gpu.capability / 10, gpu.capability % 10,
                        gpu.multiprocessors, gpu.pci_bus);
  if (gpus.list.empty()) std::cout << format("cuda   none: {}\n", gpus.why_none);
  if (!gpus.runtime.empty())
    std::cout << format("CUDA runtime {}, {}\n", gpus.runtime,
                        gpus.driver.empty() ? "no driver" : "driver for " + gpus.driver);
  const std::string mpi = process_library();
  std::cout << format("mpi    {}\n", mpi.empty() ? "none: built without MPI, processes use TCP (owt launch)" : mpi);
  return 0;
}

}  // namespace owt

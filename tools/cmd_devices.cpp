#include <iostream>

#include "src/comm/processes.h"
#include "src/commands/json_output.h"
#include "src/core/gpus.h"
#include "src/core/threads.h"
#include "src/system/cpu_level.h"
#include "src/system/log.h"
#include "tools/commands.h"

namespace owt {
namespace {

std::string capability_of(const Gpu& gpu) { return format("{}.{}", gpu.capability / 10, gpu.capability % 10); }

OutputJson devices_json(const Gpus& gpus, const std::string& mpi) {
  OutputJson json{{"cores", hardware_cores()}, {"instructions", name_of(cpu_level())}, {"gpus", OutputJson::array()}};
  for (const Gpu& gpu : gpus.list)
    json["gpus"].push_back({{"index", gpu.index},
                            {"name", gpu.name},
                            {"memory_bytes", gpu.memory},
                            {"compute_capability", capability_of(gpu)},
                            {"multiprocessors", gpu.multiprocessors},
                            {"pci", gpu.pci_bus}});
  if (gpus.list.empty()) json["no_gpus"] = gpus.why_none;
  if (!gpus.runtime.empty()) json["cuda_runtime"] = gpus.runtime;
  if (!gpus.driver.empty()) json["cuda_driver"] = gpus.driver;
  if (!mpi.empty()) json["mpi"] = mpi;
  return json;
}

void print_devices(const Gpus& gpus, const std::string& mpi) {
  std::cout << format("cpu    {} core{}, instructions of {}\n", hardware_cores(), hardware_cores() == 1 ? "" : "s",
                      name_of(cpu_level()));
  for (const Gpu& gpu : gpus.list)
    std::cout << format("cuda:{} {}, {:.1f} GiB, compute capability {}, {} multiprocessors, PCI {}\n", gpu.index,
                        gpu.name, static_cast<double>(gpu.memory) / (1 << 30), capability_of(gpu), gpu.multiprocessors,
                        gpu.pci_bus);
  if (gpus.list.empty()) std::cout << format("cuda   none: {}\n", gpus.why_none);
  if (!gpus.runtime.empty())
    std::cout << format("CUDA runtime {}, {}\n", gpus.runtime,
                        gpus.driver.empty() ? "no driver" : "driver for " + gpus.driver);
  std::cout << format("mpi    {}\n", mpi.empty() ? "none: built without MPI, processes use TCP (owt launch)" : mpi);
}

}  // namespace

int command_devices(const Arguments& arguments) {
  Options options("owt devices", "Lists the devices of this machine that can train: CPU, GPUs, and the MPI library.");
  declare_json(options);
  if (!options.parse(arguments)) {
    std::cout << options.help();
    return 0;
  }
  const Gpus gpus = find_gpus();
  const std::string mpi = process_library();
  if (options.boolean("json"))
    std::cout << json_lines(devices_json(gpus, mpi));
  else
    print_devices(gpus, mpi);
  return 0;
}

}  // namespace owt

// A machine with GPUs as a file describes it: which cards, how they are connected, how fast one of them is known to
// train a model. For predictions of machines that are not at hand; configs/machines has some of which figures were
// published.
//
//   name = "8 K20 of Krizhevsky 2014"
//   gpu = "K20"                 # one of device_names()
//   gpus = 8
//   group = 4                   # cards that share a switch, a divisor of gpus; all of them without it
//   collectives = "direct"      # "pairwise" | "direct" | "hierarchical": Network::Algorithm
//   one_port = true             # Network::one_port; false without it
//   link = { bandwidth = "6GB/s", latency = "20us" }      # of a card to those of its group
//   between = { bandwidth = "12GB/s", latency = "40us" }  # of a group to the others; where there are several groups
//   assumptions = ["..."]       # what is not published and was assumed, for people
//   source = "..."
//
//   [[speed]]                   # of one card by itself
//   model = "alexnet_owt_lrn"
//   rows = 128                  # of a step
//   images_per_second = 327.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/parallel/compute_model.h"
#include "src/parallel/network.h"

namespace owt {

struct Machine {
  struct Speed {
    std::string model;
    int64_t rows = 0;
    double images_per_second = 0;
  };

  std::string name, source;
  DeviceSpeed gpu;
  int gpus = 1, group = 1;
  Network links;  // without the number of hosts and ranks
  std::vector<Speed> speeds;
  std::vector<std::string> assumptions;

  // Of so many of its cards, the groups being hosts. Throws Error for more than there are, or for some that do not fill
  // their groups.
  Network network(int ranks) const;
  // The floors of a card (device_compute), so many times as long as it takes for the speed that is known of the model,
  // where one is.
  std::unique_ptr<ComputeModel> compute(const Model& model, Precision precision) const;
  std::string text() const;  // for people: its name, sources and assumptions, a line each
};

// Throws Error naming the file, the line and what is wrong there.
Machine read_machine(const std::string& path);

// The floors of a card in proportion, so that a step of so many rows takes what it takes at this speed.
std::unique_ptr<ComputeModel> compute_at_speed(const DeviceSpeed& gpu, const Model& model, Precision precision,
                                               int64_t rows, double images_per_second);

}  // namespace owt

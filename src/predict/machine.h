// A machine with GPUs, described by a file: the cards, their links, and known training speeds of one card. It is used
// for predictions of machines that are not available. configs/machines describes machines with published values.
//
//   name = "8 K20 of Krizhevsky 2014"
//   gpu = "K20"                 # one of device_names()
//   gpus = 8
//   group = 4                   # cards that share a switch, a divisor of gpus; default: all of them
//   collectives = "direct"      # "pairwise" | "direct" | "hierarchical": Network::Algorithm
//   one_port = true             # Network::one_port; default: false
//   link = { bandwidth = "6GB/s", latency = "20us" }      # between cards of a group
//   between = { bandwidth = "12GB/s", latency = "40us" }  # between groups, if there are several
//   assumptions = ["..."]       # values that are not published and were assumed, for people
//   source = "..."
//
//   [[speed]]                   # of a single card
//   model = "alexnet_owt_lrn"
//   rows = 128                  # of a step
//   images_per_second = 327.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/predict/compute_model.h"
#include "src/predict/network.h"

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

  // The network of this number of cards; groups are its hosts. Throws Error if there are not as many cards, or if they
  // do not fill their groups.
  Network network(int ranks) const;
  // The times of device_compute for a card. If a speed of the model is known, they are scaled so that a step takes as
  // long as at that speed.
  std::unique_ptr<ComputeModel> compute(const Model& model, Precision precision) const;
  std::string text() const;  // for people: name, sources and assumptions, one line each
};

// Throws Error with the file, the line and the problem.
Machine read_machine(const std::string& path);

// The times of device_compute, scaled so that a step of `rows` rows runs at this speed.
std::unique_ptr<ComputeModel> compute_at_speed(const DeviceSpeed& gpu, const Model& model, Precision precision,
                                               int64_t rows, double images_per_second);

}  // namespace owt

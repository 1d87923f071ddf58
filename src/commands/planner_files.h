// Files of the planner.
//
// Links, written by `owt bench-comm --json` and read by `owt plan --links`:
//   {"format": "owt links 1", "ranks": 4, "hosts": 1, "device": "cpu",
//    "times": [{"collective": "all_reduce", "bytes": 4096, "seconds": 1.1e-5, "overlaps": false,
//               "calls": 50, "algbw": 3.7e8, "busbw": 5.6e8}, ...]}
// bytes: of the whole tensor (for all_gather and all_to_all: ranks x own part). seconds: median. algbw, busbw: bytes
// per second, not read. overlaps: the call returned before the collective was complete.
//
// Prediction, written by `owt plan --json`: seconds and bytes per rank and step
//   {"format": "owt prediction 1", "model": ..., "ranks": ..., "step_rows": ..., "network": ..., "compute": ...,
//    "best": "owt-c", "reason": ..., "crossover_rows": ..., "crossover_rows_by_bytes": ...,
//    "strategies": [{"name", "strategy", "model_ranks", "bytes", "compute_s", "exposed_s", "update_s", "step_s",
//                    "images_per_second", "transfer_s", "memory_bytes"}, ...],
//    "refused": [{"name", "why"}, ...],
//    "loading": {"images_per_second", "images_per_core_second", "cores", "source"},
//    "step": {"device", "seconds", "beside_s", "floor_s", "images_per_second", "assumptions",
//             "launches": [{"layer", "phase", "kernel", "kind", "flops", "bytes", "seconds", "bound", "beside"}, ...]}}
// "loading" is written for photographs and a GPU only, "step" with --launches only.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/commands/measure_loading.h"
#include "src/predict/bench.h"
#include "src/predict/choose.h"
#include "src/predict/step_launches.h"

namespace owt {

std::string links_json(const std::vector<CollectiveTime>& times, int ranks, int hosts, Device device);
// Hosts and ranks are from the file. Throws Error with the file and the problem.
Network read_links(const std::string& path);

struct PlannerResult {
  Choice choice;
  std::string model, network, compute;                      // for people
  int64_t crossover_rows = 0, crossover_rows_by_bytes = 0;  // see choose.h
  std::optional<LoadNeed> loading{};                        // only for photographs and a GPU
  std::optional<StepEstimate> step{};                       // one worker's GPU
};
std::string prediction_json(const PlannerResult& result);

}  // namespace owt

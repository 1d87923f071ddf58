// The time of a step as a trace for a viewer.
#pragma once

#include <span>
#include <string>

#include "src/core/profiler.h"
#include "src/train/rank_times.h"

namespace owt {

// Every recorded span of every rank in the Trace Event Format (chrome://tracing, Perfetto): a process per rank, threads
// "compute", "transfer", "data"; microseconds since the first profiler was made. Requires Profiler::keep_spans(true).
// The critical path of a typical step is a separate process, aligned with the step of rank 0 closest to the median.
// Spans on the path have the argument "longest_way".
std::string trace_json(std::span<const Profiler> ranks, std::span<const PathPart> path = {});

}  // namespace owt

#include "src/report/trace.h"

#include <algorithm>
#include <cmath>

#include "src/system/log.h"

namespace owt {
namespace {

std::string quoted_for_json(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    if (static_cast<unsigned char>(c) < 0x20)
      quoted += format("\\u{:04x}", static_cast<int>(c));
    else
      quoted += c;
  }
  return quoted + "\"";
}

enum Track { kCompute, kTransferTrack, kDataTrack };
constexpr const char* kTrackNames[] = {"compute", "transfer", "data"};

Track track_of(Phase phase) {
  return phase == Phase::kTransfer ? kTransferTrack : phase == Phase::kData ? kDataTrack : kCompute;
}

std::string metadata_event(const char* what, size_t rank, int track, const std::string& name) {
  return format(R"({{"ph":"M","name":"{}","pid":{},"tid":{},"args":{{"name":"{}"}}}})", what, rank, track, name);
}

std::string complete_event(const std::string& name, const char* category, size_t process, int thread, double begin_ms,
                           double end_ms, const std::string& arguments) {
  return format(R"({{"ph":"X","name":{},"cat":"{}","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},"args":{{{}}}}})",
                quoted_for_json(name), category, process, thread, 1e3 * begin_ms, 1e3 * (end_ms - begin_ms), arguments);
}

std::string span_event(const Profiler& profiler, const Profiler::Span& span, size_t rank, double offset_ms,
                       std::span<const PathPart> path) {
  const Profiler::Row& row = profiler.rows()[span.row];
  const std::string name = text_of_row(row.name, row.phase);
  const bool on_path = std::any_of(path.begin(), path.end(), [&](const PathPart& part) {
    return part.row == name && (part.transfers || part.rank == static_cast<int>(rank));
  });
  return complete_event(name, name_of(row.phase), rank, static_cast<int>(track_of(row.phase)),
                        offset_ms + span.begin_ms, offset_ms + span.end_ms,
                        format(R"("step":{}{})", span.step, on_path ? R"(,"longest_way":true)" : ""));
}

// The beginning of the step closest to the median.
double begin_of_typical_step(const Profiler& profiler) {
  const std::vector<double>& ms = profiler.step_ms();
  const double typical = median(ms);
  const auto further = [&](double a, double b) { return std::abs(a - typical) < std::abs(b - typical); };
  const auto step = std::min_element(ms.begin(), ms.end(), further) - ms.begin();
  for (const Profiler::Span& span : profiler.spans())
    if (span.step == step) return span.begin_ms;
  return 0;
}

}  // namespace

std::string trace_json(std::span<const Profiler> ranks, std::span<const PathPart> path) {
  Profiler::Clock::time_point origin = Profiler::Clock::time_point::max();
  for (const Profiler& profiler : ranks) origin = std::min(origin, profiler.start());
  std::string text = R"({"displayTimeUnit":"ms","traceEvents":[)";
  const char* separator = "\n";
  const auto add = [&](const std::string& event) {
    text += separator + event;
    separator = ",\n";
  };
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const Profiler& profiler = ranks[rank];
    add(metadata_event("process_name", rank, 0, format("rank {}", rank)));
    for (int track = kCompute; track <= kDataTrack; ++track)
      add(metadata_event("thread_name", rank, track, kTrackNames[track]));
    const double offset_ms = std::chrono::duration<double, std::milli>(profiler.start() - origin).count();
    for (const Profiler::Span& span : profiler.spans()) add(span_event(profiler, span, rank, offset_ms, path));
  }
  if (path.empty()) return text + "\n]}\n";
  const size_t process = ranks.size();
  const double begin = begin_of_typical_step(ranks.front()) +
                       std::chrono::duration<double, std::milli>(ranks.front().start() - origin).count();
  add(metadata_event("process_name", process, 0, "critical path of a typical step"));
  for (const PathPart& part : path) {
    const int thread = part.transfers ? static_cast<int>(ranks.size()) : part.rank;
    add(complete_event(part.row, "longest way", process, thread, begin + part.begin_ms, begin + part.end_ms,
                       format(R"("rank":{})", part.rank)));
  }
  for (size_t rank = 0; rank < ranks.size(); ++rank)
    add(metadata_event("thread_name", process, static_cast<int>(rank), format("rank {}", rank)));
  add(metadata_event("thread_name", process, static_cast<int>(ranks.size()), "transfers"));
  return text + "\n]}\n";
}

}  // namespace owt

#include "src/train/metrics.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "src/system/check.h"
#include "src/system/files.h"
#include "src/system/json_text.h"
#include "src/system/printable.h"

namespace owt {
namespace {

using Json = nlohmann::ordered_json;  // writes NaN and infinity as null

// Whether a record's line is kept when the run resumes after `step`, with its last evaluation after `evaluated_step`.
// Throws Error with the key and the problem.
bool stays(const std::string& line, int64_t step, int64_t evaluated_step) {
  const Json record = json_or_discarded<Json>(line);
  if (record.is_discarded()) check_json_numbers_fit<Json>(line);
  if (!record.is_object()) return false;  // incomplete after a crash
  const bool evaluation = record.contains("kind") && (record["kind"] == "eval" || record["kind"] == "weights");
  return json_whole(record, "step", 0) <= (evaluation ? std::min(step, evaluated_step) : step);
}

}  // namespace

MetricsLog::MetricsLog(const std::string& path, std::unique_ptr<EventFile> events)
    : file_(path), events_(std::move(events)) {}

void MetricsLog::write(const StartRecord& r) {
  Json line{{"kind", "start"}, {"step", r.step}, {"epoch", r.epoch}, {"steps_per_epoch", r.steps_per_epoch}};
  line["facts"] = Json::object();
  for (const auto& [name, value] : r.facts) line["facts"][name] = printable(value);
  write_line(line.dump());
}

void MetricsLog::write(const WeightsRecord& r) {
  Json line{{"kind", "weights"}, {"step", r.step}, {"epoch", r.epoch}, {"mean", Json::object()}};
  for (const WeightSize& size : r.sizes) {
    line["mean"][size.name] = size.mean;
    if (size.change) line["change"][size.name] = *size.change;
  }
  line["seconds"] = r.seconds;
  write_line(line.dump());
}

void MetricsLog::write(const TrainRecord& r) {
  Json line{{"kind", "train"},
            {"step", r.step},
            {"epoch", r.epoch},
            {"loss", r.loss},
            {"top1", r.top1},
            {"lr", r.lr},
            {"images_per_second", r.images_per_second},
            {"data_wait_ms", r.data_wait_ms},
            {"seconds", r.seconds}};
  if (r.gradient_norm) line["gradient_norm"] = *r.gradient_norm;
  if (r.sampled_classes) line["sampled_classes"] = *r.sampled_classes;
  if (r.corrupt_records > 0) line["corrupt_records"] = r.corrupt_records;
  write_line(line.dump());
}

void MetricsLog::write(const EvalRecord& r) {
  Json line{{"kind", "eval"},      {"split", name_of(r.split)},
            {"step", r.step},      {"epoch", r.epoch},
            {"loss", r.loss},      {"top1", r.top1},
            {"top5", r.top5},      {"images", r.images},
            {"seconds", r.seconds}};
  if (r.ema) line["ema"] = true;
  if (r.penalty) line["penalty"] = r.penalty->loss, line["zeros"] = r.penalty->zeros;
  write_line(line.dump());
}

void MetricsLog::write(const BottleneckRecord& r) {
  write_line(Json{{"kind", "bottleneck"}, {"step", r.step}, {"text", r.text}, {"seconds", r.seconds}}.dump());
}

void MetricsLog::write(const WorldRecord& r) {
  write_line(Json{{"kind", "world"},
                  {"step", r.step},
                  {"workers", r.workers},
                  {"text", printable(r.text)},
                  {"repeated", r.repeated},
                  {"seconds", r.seconds}}
                 .dump());
}

void MetricsLog::write(const SimulationRecord& r) {
  Json line{{"kind", "simulation"}, {"step", r.step}, {"updates", r.updates}, {"dropped", r.dropped}};
  line["workers"] = Json::array();
  const auto of_link = [](Json& of, const LinkBytes& bytes) { of["bytes_out"] = bytes.out, of["bytes_in"] = bytes.in; };
  for (const SimulationRecord::SimulatedWorker& each : r.workers) {
    Json worker{{"tasks", each.tasks}, {"computing", each.computing}, {"on_the_way", each.on_the_way}};
    if (r.bytes_between_workers == 0) of_link(worker, each.link);
    line["workers"].push_back(std::move(worker));
  }
  line["staleness"] = Json::object();
  for (const auto& [updates, gradients] : r.staleness) line["staleness"][std::to_string(updates)] = gradients;
  if (r.bytes_between_workers > 0) {
    line["bytes_between_workers"] = r.bytes_between_workers;
  } else {
    line["bytes_to_servers"] = r.bytes_to_servers;
    line["bytes_to_workers"] = r.bytes_to_workers;
  }
  if (r.each_server) of_link(line["each_server"], *r.each_server);
  line["seconds"] = r.seconds;
  write_line(line.dump());
}

void MetricsLog::write(const EndRecord& r) {
  write_line(Json{{"kind", "end"}, {"step", r.step}, {"state", r.state}, {"seconds", r.seconds}}.dump());
}

void MetricsLog::write_line(const std::string& line) {
  file_.append(line + '\n');
  if (events_) events_->take(line);
}

bool MetricsLog::is_complete() const { return file_.is_complete() && (!events_ || events_->is_complete()); }

namespace {

std::string metrics_up_to(const std::string& path, const std::string& content, int64_t step, int64_t evaluated_step) {
  std::string kept;
  std::istringstream lines(content);
  int number = 1;
  for (std::string line; std::getline(lines, line); ++number) {
    try {
      if (stays(line, step, evaluated_step)) kept += line + '\n';
    } catch (const Error& e) {
      fail(path, ":", number, ": ", e.what(), "; mend or remove that line, then resume the run");
    }
  }
  return kept;
}

}  // namespace

void check_metrics(const std::string& path) {
  if (std::filesystem::exists(path)) metrics_up_to(path, read_file(path), 0, 0);
}

void drop_metrics_after(const std::string& path, int64_t step, int64_t evaluated_step) {
  if (!std::filesystem::exists(path)) return;
  const std::string content = read_file(path), kept = metrics_up_to(path, content, step, evaluated_step);
  if (kept != content) write_file_atomically(path, kept);
}

}  // namespace owt

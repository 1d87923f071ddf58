#include "src/system/own_words.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <new>
#include <system_error>
#include <utility>

#include "src/system/check.h"
#include "src/system/log.h"
#include "src/system/utf8.h"

namespace owt {
namespace {

constexpr size_t kLongestMessage = 4000, kEndOfMessage = 1000;

// Words of other programs, and own ones without their table, with the key or the option that they mean.
constexpr std::pair<const char*, const char*> kWordsOfOthers[] = {
    {"lr", "optimizer.learning_rate"},
    {"learning_rate", "optimizer.learning_rate"},
    {"lr0", "optimizer.learning_rate"},
    {"base_lr", "optimizer.learning_rate"},
    {"rate", "optimizer.learning_rate"},
    {"decay", "optimizer.decay"},
    {"wd", "optimizer.decay"},
    {"weight_decay", "optimizer.decay"},
    {"l2", "optimizer.decay"},
    {"momentum", "optimizer.momentum"},
    {"batch", "data.batch"},
    {"bs", "data.batch"},
    {"batchsize", "data.batch"},
    {"batch_size", "data.batch"},
    {"j", "data.loader_threads"},
    {"num_workers", "data.loader_threads"},
    {"epochs", "schedule.epochs"},
    {"max_epochs", "schedule.epochs"},
    {"num_epochs", "schedule.epochs"},
    {"n_epochs", "schedule.epochs"},
    {"iterations", "schedule.max_steps"},
    {"max_iter", "schedule.max_steps"},
    {"num_steps", "schedule.max_steps"},
    {"gpus", "parallel.workers"},
    {"num_gpus", "parallel.workers"},
    {"ngpus", "parallel.workers"},
    {"nproc", "parallel.workers"},
    {"nproc_per_node", "parallel.workers"},
    {"world_size", "parallel.workers"},
    {"seed", "run.seed"},
    {"amp", "run.precision"},
    {"half", "run.precision"},
    {"dtype", "run.precision"},
    {"data_dir", "data"},
    {"data_path", "data"},
    {"dataset", "data"},
    {"output", "out"},
    {"output_dir", "out"},
    {"save_dir", "out"},
    {"pretrained", "weights"},
    {"checkpoint", "weights"},
    {"num_classes", "classes"},
};

}  // namespace

std::string own_words(const std::exception& e) {
  if (dynamic_cast<const Error*>(&e)) return e.what();
  if (dynamic_cast<const std::bad_alloc*>(&e)) return "out of memory";
  if (const auto* file = dynamic_cast<const std::filesystem::filesystem_error*>(&e))
    return concat("cannot use ", file->path1().string(), ": ", file->code().message());
  if (const auto* system = dynamic_cast<const std::system_error*>(&e)) return system->code().message();
  return concat("unexpected error: ", e.what());
}

std::string fit_for_message(const std::string& text) {
  if (text.size() <= kLongestMessage) return text;
  // Does not cut within a character of UTF-8.
  size_t front = kLongestMessage - kEndOfMessage, end = text.size() - kEndOfMessage;
  while (front > 0 && !begins_character(text[front])) --front;
  while (end < text.size() && !begins_character(text[end])) ++end;
  return concat(text.substr(0, front), " ... (", end - front, " bytes) ... ", text.substr(end));
}

std::string number_text(double value) {
  return std::abs(value) < 1e18 && value == std::floor(value) ? std::to_string(static_cast<int64_t>(value))
                                                              : format("{}", value);
}

std::string range_text(const Range& range) {
  const bool low = std::isfinite(range.low), high = std::isfinite(range.high);
  if (range.low == std::numeric_limits<double>::min())  // the low end of a range that excludes 0
    return high ? concat("more than 0 and at most ", number_text(range.high)) : "more than 0";
  if (low && high) return concat(number_text(range.low), " to ", number_text(range.high));
  if (low) return concat("at least ", number_text(range.low));
  return high ? concat("at most ", number_text(range.high)) : "";
}

std::string key_for(std::string_view word) {
  std::string plain(word);
  std::replace(plain.begin(), plain.end(), '-', '_');
  for (const auto& [others, key] : kWordsOfOthers)
    if (plain == others) return key;
  return "";
}

}  // namespace owt

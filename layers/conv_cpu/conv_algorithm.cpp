#include "layers/conv_cpu/conv_algorithm.h"

#include <algorithm>
#include <array>

#include "src/system/check.h"
#include "src/system/log.h"

namespace owt {
namespace {

constexpr double kWorthIt = 0.95;  // times the direct time; a smaller gain is within the noise of one measurement

constexpr std::array kNames{
    std::pair{ConvAlgorithm::kAuto, "auto"},           std::pair{ConvAlgorithm::kByShape, "by-shape"},
    std::pair{ConvAlgorithm::kDirect, "direct"},       std::pair{ConvAlgorithm::kFewChannels, "few-channels"},
    std::pair{ConvAlgorithm::kDepthwise, "depthwise"}, std::pair{ConvAlgorithm::kWinogradBf16, "winograd-bf16"},
    std::pair{ConvAlgorithm::kWinograd, "winograd"}};

bool has(const ConvChoices::Candidates& candidates, ConvAlgorithm algorithm) {
  return std::ranges::find(candidates, algorithm) != candidates.end();
}

// The part of a key() before the team size.
std::string geometry_of(const std::string& key) { return key.substr(0, key.rfind(", ")); }

}  // namespace

const char* name_of(ConvAlgorithm algorithm) {
  return std::ranges::find(kNames, algorithm, [](const auto& named) { return named.first; })->second;
}

ConvAlgorithm conv_algorithm_from(const std::string& name) {
  for (const auto& [algorithm, its_name] : kNames)
    if (name == its_name) return algorithm;
  fail("no convolution algorithm '", name,
       "'; there are auto, by-shape, direct, few-channels, depthwise, winograd, winograd-bf16");
}

std::string ConvChoices::key(const std::string& geometry, int team) { return format("{}, {} threads", geometry, team); }

ConvChoices& ConvChoices::process() {
  static ConvChoices choices;
  return choices;
}

void ConvChoices::set_mode(ConvAlgorithm mode) {
  const std::lock_guard lock(mutex_);
  mode_ = mode;
}

ConvAlgorithm ConvChoices::mode() const {
  const std::lock_guard lock(mutex_);
  return mode_;
}

ConvAlgorithm ConvChoices::choose(const std::string& key, const Candidates& candidates, double largest_error,
                                  const std::function<std::vector<Timing>()>& measure) {
  const std::lock_guard lock(mutex_);
  if (mode_ == ConvAlgorithm::kByShape) return candidates.back();
  if (mode_ != ConvAlgorithm::kAuto) return has(candidates, mode_) ? mode_ : ConvAlgorithm::kDirect;
  if (table_.count(key)) return known(key, candidates);
  const auto of_other_team = all_teams_.find(geometry_of(key));
  if (of_other_team != all_teams_.end()) {
    table_[key] = {key, of_other_team->second, {}};
    return known(key, candidates);
  }
  if (follows_ || candidates.size() == 1) return ConvAlgorithm::kDirect;
  std::vector<Timing> measured = measure();
  if (retime_) retime_(key, measured);
  ConvAlgorithm best = ConvAlgorithm::kDirect;
  double least = kWorthIt * measured.at(0).ms;
  for (const Timing& each : measured)
    if (each.ms < least && each.error <= largest_error) {
      best = each.algorithm;
      least = each.ms;
    }
  table_[key] = {key, best, measured};
  return best;
}

ConvAlgorithm ConvChoices::known(const std::string& key, const Candidates& candidates) {
  ConvAlgorithm& chosen = table_.at(key).algorithm;
  if (has(candidates, chosen)) return chosen;
  ++replaced_;
  return chosen = ConvAlgorithm::kDirect;
}

std::map<std::string, std::string> ConvChoices::exported() const {
  const std::lock_guard lock(mutex_);
  std::map<std::string, std::string> names;
  for (const auto& [key, choice] : table_) names[key] = name_of(choice.algorithm);
  return names;
}

void ConvChoices::preload(const std::map<std::string, std::string>& choices) {
  std::map<std::string, Chosen> loaded;
  for (const auto& [key, name] : choices) {
    const ConvAlgorithm algorithm = conv_algorithm_from(name);
    if (algorithm == ConvAlgorithm::kAuto || algorithm == ConvAlgorithm::kByShape)
      fail("convolution '", key, "' needs an algorithm, not ", name);
    loaded[key] = {key, algorithm, {}};
  }
  const std::lock_guard lock(mutex_);
  for (auto& [key, choice] : loaded) table_[key] = choice;
}

void ConvChoices::preload_for_all_teams(const std::map<std::string, std::string>& choices) {
  preload(choices);
  const std::lock_guard lock(mutex_);
  for (const auto& [key, name] : choices) all_teams_.try_emplace(geometry_of(key), conv_algorithm_from(name));
}

void ConvChoices::follow(const std::map<std::string, std::string>& choices) {
  preload_for_all_teams(choices);
  const std::lock_guard lock(mutex_);
  follows_ = true;
}

void ConvChoices::set_retime(Retime retime) {
  const std::lock_guard lock(mutex_);
  retime_ = std::move(retime);
}

void ConvChoices::clear() {
  const std::lock_guard lock(mutex_);
  follows_ = false;
  all_teams_.clear();
  table_.clear();
  replaced_ = 0;
}

std::vector<ConvChoices::Chosen> ConvChoices::choices() const {
  const std::lock_guard lock(mutex_);
  std::vector<Chosen> all;
  for (const auto& [key, choice] : table_) all.push_back(choice);
  return all;
}

std::vector<std::string> ConvChoices::report() const {
  std::vector<std::string> lines;
  for (const Chosen& choice : choices()) {
    std::string times;
    for (const Timing& each : choice.measured)
      times += each.algorithm == ConvAlgorithm::kDirect
                   ? format("direct {:.2f} ms", each.ms)
                   : format(", {} {:.2f} ms with error {:.0e}", name_of(each.algorithm), each.ms, each.error);
    lines.push_back(format("{}: {} ({})", choice.key, name_of(choice.algorithm), times.empty() ? "as before" : times));
  }
  return lines;
}

std::vector<std::string> ConvChoices::warnings() const {
  const std::lock_guard lock(mutex_);
  if (replaced_ == 0) return {};
  return {format(
      "convolutions: {} pass(es) went by an algorithm before the checkpoint that cannot compute them on this machine, "
      "and are direct from here on: the run goes on to rounding, not bit for bit",
      replaced_)};
}

}  // namespace owt

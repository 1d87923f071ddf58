#include "layers/conv_algorithm.h"

#include "src/core/check.h"
#include "src/core/log.h"

namespace owt {
namespace {

constexpr double kWorthIt = 0.95;  // times the direct time; less gain is within the noise of one measurement
constexpr double kLargestError = 1e-4;

// What a key() says before the team.
std::string geometry_of(const std::string& key) { return key.substr(0, key.rfind(", ")); }

}  // namespace

const char* name_of(ConvAlgorithm algorithm) {
  switch (algorithm) {
    case ConvAlgorithm::kDirect:
      return "direct";
    case ConvAlgorithm::kWinograd:
      return "winograd";
    default:
      return "auto";
  }
}

ConvAlgorithm conv_algorithm_from(const std::string& name) {
  for (const auto algorithm : {ConvAlgorithm::kAuto, ConvAlgorithm::kDirect, ConvAlgorithm::kWinograd})
    if (name == name_of(algorithm)) return algorithm;
  fail("no convolution algorithm '", name, "'; there are auto, direct, winograd");
}

std::string ConvChoices::key(const std::string& geometry, int team) { return format("{}, {} threads", geometry, team); }

ConvChoices& ConvChoices::process() {
  static ConvChoices choices(why_no_winograd());
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

ConvAlgorithm ConvChoices::choose(const std::string& key, const std::function<Measured()>& measure) {
  const std::lock_guard lock(mutex_);
  if (mode_ != ConvAlgorithm::kAuto) return mode_;
  const auto known = table_.find(key);
  if (known != table_.end()) return known->second.algorithm;
  const auto of_other_team = all_teams_.find(geometry_of(key));
  if (of_other_team != all_teams_.end()) {
    table_[key] = {key, of_other_team->second, {}};
    return of_other_team->second;
  }
  if (follows_) return ConvAlgorithm::kDirect;
  const Measured measured = measure();
  const bool winograd = measured.winograd_ms < kWorthIt * measured.direct_ms && measured.error <= kLargestError;
  const ConvAlgorithm algorithm = winograd ? ConvAlgorithm::kWinograd : ConvAlgorithm::kDirect;
  table_[key] = {key, algorithm, measured};
  return algorithm;
}

void ConvChoices::has_no_winograd(const std::string& key) {
  const std::lock_guard lock(mutex_);
  missed_ = true;
  const auto known = table_.find(key);
  if (known == table_.end() || known->second.algorithm != ConvAlgorithm::kWinograd) return;
  known->second.algorithm = ConvAlgorithm::kDirect;
  ++replaced_;
}

std::map<std::string, std::string> ConvChoices::exported() const {
  const std::lock_guard lock(mutex_);
  std::map<std::string, std::string> names;
  for (const auto& [key, choice] : table_) names[key] = name_of(choice.algorithm);
  return names;
}

void ConvChoices::preload(const std::map<std::string, std::string>& choices) {
  std::map<std::string, Choice> loaded;
  for (const auto& [key, name] : choices) {
    const ConvAlgorithm algorithm = conv_algorithm_from(name);
    if (algorithm == ConvAlgorithm::kAuto) fail("convolution '", key, "' needs direct or winograd, not auto");
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

void ConvChoices::clear() {
  const std::lock_guard lock(mutex_);
  follows_ = false;
  all_teams_.clear();
  table_.clear();
  missed_ = false;
  replaced_ = 0;
}

std::vector<ConvChoices::Choice> ConvChoices::choices() const {
  const std::lock_guard lock(mutex_);
  std::vector<Choice> all;
  for (const auto& [key, choice] : table_) all.push_back(choice);
  return all;
}

std::vector<std::string> ConvChoices::report() const {
  std::vector<std::string> lines;
  for (const Choice& choice : choices()) {
    const Measured& m = choice.measured;
    const std::string times = m.direct_ms == 0 ? "as before"
                                               : format("direct {:.2f} ms, winograd {:.2f} ms, error {:.0e}",
                                                        m.direct_ms, m.winograd_ms, m.error);
    lines.push_back(format("{}: {} ({})", choice.key, name_of(choice.algorithm), times));
  }
  const std::lock_guard lock(mutex_);
  if (mode_ == ConvAlgorithm::kAuto && misses_winograd())
    lines.push_back(format("of every kind: direct ({})", no_winograd_));
  return lines;
}

std::vector<std::string> ConvChoices::warnings() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> lines;
  if (mode_ == ConvAlgorithm::kWinograd && misses_winograd())
    lines.push_back(format("run.conv_algorithm is 'winograd', but {}: all convolutions are direct", no_winograd_));
  if (replaced_ > 0)
    lines.push_back(format(
        "convolutions: {} pass(es) went by Winograd's algorithm before the checkpoint, which cannot compute them on "
        "this machine, and are direct from here on: the run goes on to rounding, not bit for bit",
        replaced_));
  return lines;
}

}  // namespace owt

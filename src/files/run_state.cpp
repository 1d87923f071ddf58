#include "src/files/run_state.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "src/system/check.h"
#include "src/system/files.h"
#include "src/system/json_text.h"

namespace owt {
namespace {

using Json = nlohmann::ordered_json;
using Texts = std::map<std::string, std::string>;

constexpr const char* kOwnChecksum = "checksum";

uint64_t parse_hex(const std::string& text) {
  uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value, 16);
  if (error != std::errc() || stop != end) fail("'", text, "' is no checksum");
  return value;
}

// JSON reads an integer of more than 64 bits as a floating-point number, which may not fit.
uint64_t seed_in(const Json& json) {
  const Json value = json.value("seed", Json());
  if (!value.is_number_unsigned()) not_wanted("seed", json, "a whole number of 64 bits");
  return value.get<uint64_t>();
}

int64_t images_in_epoch(const Json& json, int64_t step_rows) {
  if (json.contains("images_in_epoch")) return json_whole(json, "images_in_epoch", 0);
  int64_t done = 0;  // overflow is an error, since images are counted in 64 bits
  if (__builtin_mul_overflow(json_whole(json, "step_in_epoch", 0), step_rows, &done))
    fail("its steps are more than any run has");
  return done;
}

// Checkpoints of runs with equal shares have none.
std::vector<double> shares_in(const Json& json, int workers) {
  const auto shares = json_get_or(json, "measured_shares", std::vector<double>(), "numbers");
  const bool positive = std::all_of(shares.begin(), shares.end(), [](double share) { return share > 0; });
  if (!positive || (!shares.empty() && std::ssize(shares) != workers))
    not_wanted("measured_shares", json, "a positive number for each worker");
  return shares;
}

// Only runs that have measured it have it.
std::string decoder_in(const Json& json) {
  const auto decoder = json_get_or(json, "decoder", std::string(), "a text");
  if (!decoder.empty() && decoder != "cpu" && decoder != "gpu") not_wanted("decoder", json, "cpu or gpu");
  return decoder;
}

RunState::UpdateCounts updates_in(const Json& json) {
  if (!json.contains("updates")) return {};
  const Json& pair = json.at("updates");
  const auto counts = [](const Json& count) { return count.is_number_unsigned() && count.get<uint64_t>() >> 62 == 0; };
  if (!pair.is_array() || pair.size() != 2 || !counts(pair[0]) || !counts(pair[1]))
    not_wanted("updates", json, "two numbers of updates");
  return {pair[0].get<int64_t>(), pair[1].get<int64_t>()};
}

// Only runs with a plateau schedule have it.
Plateau plateau_in(const Json& json) {
  if (!json.contains("plateau")) return {};
  const Json& of = json.at("plateau");
  const bool fits = of.is_array() && of.size() == 3 && of[0].is_number() && of[1].is_number_unsigned() &&
                    of[2].is_number_unsigned() && std::in_range<int64_t>(of[1].get<uint64_t>()) &&
                    of[2].get<uint64_t>() <= uint64_t{1} << 32;
  if (!fits) not_wanted("plateau", json, "the best value and two counts");
  return {true, of[0].get<double>(), of[1].get<int64_t>(), of[2].get<int64_t>()};
}

// Any other name is not a file of a checkpoint, and reading it might never end.
const std::string& own_file(const std::string& name) {
  if (name.empty() || name == ".." || name.find('/') != std::string::npos)
    fail("it names '", name, "', which is no file of its folder");
  return name;
}

}  // namespace

std::string RunState::to_json() const {
  OWT_CHECK(std::isfinite(best_top1), "best_top1 is ", best_top1);
  Json json{{"step", step},           {"epoch", epoch},         {"images_in_epoch", images_in_epoch},
            {"step_rows", step_rows}, {"images", images},       {"evaluated_step", evaluated_step},
            {"seed", seed},           {"best_top1", best_top1}, {"best_step", best_step},
            {"workers", workers},     {"strategy", strategy},   {"conv_choices", conv_choices}};
  if (data != 0) json["data"] = hex(data);
  if (ema_step >= 0) json["ema_step"] = ema_step;
  json["optimizer"] = optimizer;
  json["updates"] = {updates.front, updates.back};
  if (plateau.begun) json["plateau"] = {plateau.best, plateau.waited, plateau.falls};
  if (since_best > 0) json["since_best"] = since_best;
  if (!measured_shares.empty()) json["measured_shares"] = measured_shares;
  if (!decoder.empty()) json["decoder"] = decoder;
  Json sums = Json::object();
  for (const auto& [file, sum] : checksums) sums[file] = hex(sum);
  json["checksums"] = sums;
  json[kOwnChecksum] = hex(checksum_of(json.dump()));
  return json.dump(2) + "\n";
}

RunState RunState::from_json(const std::string& text, const std::string& path) {
  RunState state;
  try {
    Json json = json_object<Json>(text);
    const uint64_t noted = parse_hex(json_get<std::string>(json, kOwnChecksum, "a text"));
    json.erase(kOwnChecksum);
    if (checksum_of(json.dump()) != noted) fail("its checksum does not match");
    const std::string rest = text.substr(text.rfind('}') + 1);
    if (!rest.empty() && rest != "\n") fail("extra bytes after the end");
    state.step = json_whole(json, "step", 0);
    state.epoch = json_whole(json, "epoch", 0);
    state.step_rows = json_whole(json, "step_rows", 0);
    state.images_in_epoch = owt::images_in_epoch(json, state.step_rows);
    state.images = json_whole(json, "images", 0);
    if (state.images_in_epoch > state.images)
      fail("it says that ", state.images_in_epoch, " of ", state.images, " images are done");
    if (json.contains("data")) state.data = parse_hex(json_get<std::string>(json, "data", "a text"));
    state.evaluated_step = json_whole(json, "evaluated_step", -1);
    if (json.contains("ema_step")) state.ema_step = json_whole(json, "ema_step", 0, state.step);
    state.seed = seed_in(json);
    state.best_top1 = json_get<double>(json, "best_top1", "a number");
    state.best_step = json_whole(json, "best_step", -1);
    if (json.contains("since_best")) state.since_best = json_whole(json, "since_best", 0);
    state.workers = static_cast<int>(json_whole(json, "workers", 1, std::numeric_limits<int>::max()));
    state.strategy = json_get<std::string>(json, "strategy", "a text");
    state.optimizer = json_get_or(json, "optimizer", state.optimizer, "a text");
    state.updates = updates_in(json);
    state.plateau = plateau_in(json);
    state.measured_shares = shares_in(json, state.workers);
    state.decoder = decoder_in(json);
    state.conv_choices = json_get<Texts>(json, "conv_choices", "texts");
    for (const auto& [file, sum] : json_get<Texts>(json, "checksums", "texts"))
      state.checksums[own_file(file)] = parse_hex(sum);
  } catch (const Error& e) {
    fail(path, " is damaged: ", e.what());
  }
  return state;
}

}  // namespace owt

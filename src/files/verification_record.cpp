#include "src/files/verification_record.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "src/system/check.h"
#include "src/system/files.h"
#include "src/system/json_text.h"
#include "src/system/own_words.h"

namespace owt {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr uintmax_t kMostBytes = 1 << 20;

double fraction_in(const Json& json, const std::string& key) {
  const auto value = json_get<double>(json, key, "a number");
  if (!(value >= 0 && value <= 1)) not_wanted(key, json, "a number from 0 to 1");
  return value;
}

std::vector<AcceptRates> asked_rates_in(const Json& json) {
  std::vector<AcceptRates> rates;
  for (const Json& each : json_objects(json, "at_far"))
    rates.push_back({fraction_in(each, "far"), fraction_in(each, "tar")});
  return rates;
}

std::vector<AcceptRates> curve_in(const Json& json) {
  std::vector<AcceptRates> rates;
  for (const Json& each : json_objects(json, "roc")) {
    rates.push_back({fraction_in(each, "far"), fraction_in(each, "tar")});
    if (!(rates.back().far > (rates.size() == 1 ? 0 : rates[rates.size() - 2].far)))
      fail("the false accept rates of 'roc' do not increase from above 0");
  }
  return rates;
}

VerificationRecord read_record(const fs::path& path) {
  if (!fs::is_regular_file(path)) fail(path.string(), " is no regular file");
  if (fs::file_size(path) > kMostBytes) fail(path.string(), " has more than ", kMostBytes >> 20, " MiB");
  return VerificationRecord::from_json(read_file(path.string()), path.string());
}

}  // namespace

VerificationRecord VerificationRecord::from_json(const std::string& text, const std::string& path) {
  VerificationRecord record;
  record.name = fs::path(path).stem().string();
  try {
    const Json json = json_object<Json>(text);
    if (json_get<std::string>(json, "format", "a text") != kVerificationFormat)
      fail("'format' is not '", kVerificationFormat, "'");
    record.weights = json_get<std::string>(json, "weights", "a text");
    record.layer = json_get<std::string>(json, "layer", "a text");
    record.features = json_whole(json, "features", 1);
    record.mirrored = json_get<bool>(json, "mirrored", "true or false");
    record.images = json_whole(json, "images", 1);
    record.same_pairs = json_whole(json, "same_pairs", 1);
    record.different_pairs = json_whole(json, "different_pairs", 1);
    record.accuracy = fraction_in(json, "accuracy");
    record.deviation = fraction_in(json, "accuracy_deviation");
    record.equal_error_rate = fraction_in(json, "equal_error_rate");
    record.area_under_roc = fraction_in(json, "area_under_roc");
    record.at_far = asked_rates_in(json);
    record.roc = curve_in(json);
  } catch (const Error& e) {
    fail(path, " is no result of owt verify: ", e.what());
  }
  return record;
}

std::vector<VerificationRecord> verifications_of(const std::string& run, std::vector<std::string>& wrong) {
  std::vector<VerificationRecord> records;
  const fs::path folder = fs::path(run) / kVerificationFolder;
  std::vector<fs::path> files;
  std::error_code none;
  for (fs::directory_iterator at(folder, none), end; !none && at != end; at.increment(none))
    if (at->path().extension() == ".json") files.push_back(at->path());
  std::ranges::sort(files);
  if (files.size() > kMostVerifications) {
    wrong.push_back(
        concat(folder.string(), " has ", files.size(), " results; only the first ", kMostVerifications, " are shown"));
    files.resize(kMostVerifications);
  }
  for (const fs::path& file : files) try {
      records.push_back(read_record(file));
    } catch (const std::exception& e) {
      wrong.push_back(own_words(e));
    }
  return records;
}

}  // namespace owt

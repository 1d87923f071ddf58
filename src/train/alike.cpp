#include "src/train/alike.h"

#include <filesystem>

#include "src/comm/launch.h"
#include "src/comm/threads.h"
#include "src/comm/watch.h"
#include "src/core/blas.h"
#include "src/core/gpus.h"
#include "src/system/files.h"
#include "src/system/version.h"
#include "src/train/data_facts.h"

namespace owt {
namespace {

constexpr const char* kSameCommand = "give all processes the same command line";
constexpr const char* kSameData = "give all hosts the same data";

void add_images(std::vector<Fact>& facts, const Dataset* images, const std::string& which, const std::string& where) {
  if (!images) return;
  facts.push_back({concat("number of ", which, " images"), std::to_string(images->size()), kSameData, where});
  facts.push_back({concat("classes of the ", which, " images"), std::to_string(images->classes()), kSameData, where});
  facts.push_back({concat("checksum of the ", which, " images"), hex(images->checksum()), kSameData, where});
}

}  // namespace

Fact program_fact() { return {"program", concat("owt ", program_version()), "install the same program on all hosts"}; }

Fact device_fact(const std::string& device) {
  Fact fact{"device", "none", "look at the drivers of the hosts, or choose with --device"};
  std::string why;
  try {
    const Device found = device_from(device);
    fact.value = name_of(found);
    if (found == Device::kCpu) why = find_gpus().why_none;
  } catch (const Error& e) {
    why = e.what();
  }
  if (!why.empty()) fact.where = concat("(", why, ")");
  return fact;
}

Fact option_fact(const std::string& name, const std::string& value) {
  return {concat("--", name), value.empty() ? "nothing" : value, kSameCommand};
}

Fact option_is_given(const std::string& name, bool given) { return option_fact(name, given ? "a value" : ""); }

void start_together(const std::string& command, const Settings& settings, const std::vector<Fact>& more) {
  set_watch_timeout(settings.parallel.timeout_s);
  set_stall_timeout(settings.parallel.stall_s);
  if (!launch().several()) return;
  std::vector<Fact> facts{
      program_fact(),
      {"command", command, kSameCommand},
      {"recipe", settings.recipe.to_toml(), "give all hosts the same files, and all processes the same command line"},
      device_fact(settings.run.device),
      {"precision", name_of(settings.run.precision), kSameCommand}};
  if (settings.run.canonical)
    facts.push_back({"processor's instructions", instructions_of_products(),
                     "canonical sums have the same bits on like processors only; leave run.canonical out"});
  facts.insert(facts.end(), more.begin(), more.end());
  check_alike(facts);
  check_launched(settings.parallel.workers);  // after the comparison, so all expect the same number
}

void check_same_data(const Job& job, const std::string& folder) {
  if (!launch().several()) return;  // reading all of the data takes a moment
  const bool made_up = job.settings.data.format == "synthetic";
  const std::string where = made_up ? "" : concat("in ", std::filesystem::absolute(folder).string());
  std::vector<Fact> facts;
  add_images(facts, job.train.get(), "training", where);
  add_images(facts, job.test.get(), "test", where);
  add_images(facts, job.validation.get(), "validation", where);
  facts.push_back({"checksum of the statistics of the training images", hex(checksum_of(text_of(job.statistics))),
                   kSameData, where});
  check_alike(facts);
}

}  // namespace owt

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <iterator>

#include "data/cifar.h"
#include "data/other_data.h"
#include "src/comm/launch.h"
#include "src/commands/json_output.h"
#include "src/commands/measure_loading.h"
#include "src/core/threads.h"
#include "src/files/checkpoint_files.h"
#include "src/system/log.h"
#include "src/train/job.h"
#include "tools/commands.h"
#include "tools/recipes.h"

namespace owt {
namespace {

namespace fs = std::filesystem;

// What is read, and how.
struct LoadedData {
  std::string folder, recipe;
  Settings settings;
};

// The format of the data set in a folder. Throws Error if there is none.
std::string format_in(const std::string& folder) {
  if (fs::exists(fs::path(folder) / "classes.txt")) return "shards";
  if (has_cifar(folder, CifarKind::k10, Split::kTrain)) return "cifar10";
  if (has_cifar(folder, CifarKind::k100, Split::kTrain)) return "cifar100";
  const std::string other = other_data(folder);
  fail(folder, " is no data set", other.empty() ? "; name one, or a recipe with data.dir" : ": ", other);
}

LoadedData data_from(const Options& options) {
  const std::string given = options.string("DATA");
  const bool is_recipe = !fs::is_directory(given) || fs::exists(fs::path(given) / kRunConfig) || is_checkpoint(given);
  if (is_recipe && options.given("recipe"))
    throw UsageError(concat("--recipe is for a folder of data, and ", given, " is a recipe"));
  LoadedData data{.folder = given, .recipe = given, .settings = {}};
  Overrides first;
  if (!is_recipe) {
    const std::string format = format_in(given);
    data.recipe = format == "shards" ? "imagenet_resnet50" : "cifar10_resnet20";
    if (options.given("recipe")) data.recipe = options.string("recipe");
    if (format == "cifar100" && !options.given("recipe")) first.emplace_back("data.format", format);
  }
  Overrides changes = shared_overrides(options);
  changes.insert(changes.begin(), first.begin(), first.end());
  data.settings = read_settings(config_file(data.recipe), changes);
  if (is_recipe) data.folder = data_folder(data.settings.data, "");
  return data;
}

std::vector<int> threads_from(const Options& options, const Settings& settings) {
  if (!options.given("threads")) return {settings.data.loader_threads};
  std::vector<int> counts;
  for (const double count : numbers_option(options, "threads")) {
    if (!(count >= 1 && count <= 256) || count != std::floor(count))
      throw UsageError(concat("--threads ", options.string("threads"), ": wanted numbers from 1 to 256"));
    counts.push_back(static_cast<int>(count));
  }
  return counts;
}

// With data.decoder = "auto" both decoders are measured, if the GPU has both.
std::vector<LoadSpeed> measure_decoders(LoadedData data, const LoadRequest& request) {
  Decoder& decoder = data.settings.data.decoder;
  const auto measure = [&] { return measure_loading(data.settings, data.folder, request); };
  if (decoder != Decoder::kAuto) return {measure()};
  decoder = Decoder::kCpu;
  std::vector<LoadSpeed> speeds{measure()};
  if (!speeds.front().on_gpu) return speeds;
  decoder = Decoder::kGpu;
  try {
    speeds.push_back(measure());
  } catch (const Error& e) {
    log_info("only the CPU decodes: {}", e.what());
  }
  return speeds;
}

double percent(double part) { return 100 * part; }

void print_stages(const LoadSpeed& speed) {
  const double whole = speed.thread_s();
  std::cout << format("\n{:<8} {:>9} {:>9} {:>16}\n", "stage", "us/image", "share %", "images/s alone");
  const auto line = [&](const char* name, double seconds) {
    std::cout << format("{:<8} {:>9.2f} {:>9.1f} {:>16.0f}\n", name, 1e6 * seconds, percent(seconds / whole),
                        1 / seconds);
  };
  for (int i = 0; i < kLoadStages; ++i)
    if (const auto stage = static_cast<LoadStage>(i); speed.stage_s(stage) > 0)
      line(name_of(stage), speed.stage_s(stage));
  std::cout << format("{:<8} {:>9.2f} {:>9.1f}\n", "rest", 1e6 * speed.rest_s(), percent(speed.rest_s() / whole));
  line("a thread", whole);
  if (speed.copy_s > 0)
    std::cout << format("copy to the GPU, beside the threads: {:.1f} us/image\n", 1e6 * speed.copy_s);
}

LoadStage longest_stage(const LoadSpeed& speed) {
  auto longest = LoadStage::kRead;
  for (int i = 1; i < kLoadStages; ++i)
    if (const auto stage = static_cast<LoadStage>(i); speed.stage_s(stage) > speed.stage_s(longest)) longest = stage;
  return longest;
}

void print_advice(const LoadSpeed& speed, const LoadedData& data, bool cold) {
  constexpr double kMuch = 0.1, kCrowded = 0.8;
  const LoadStage longest = longest_stage(speed);
  std::cout << '\n';
  if (speed.waiting_share() > kMuch)
    std::cout << format("The threads wait for files: {:.0f} % of their time. A faster disk helps most.\n",
                        percent(speed.waiting_share()));
  else
    std::cout << format("Longest stage: {}, {:.0f} %. One core makes {:.0f} images/s", name_of(longest),
                        percent(speed.stage_s(longest) / speed.thread_s()), speed.images_per_core_s())
              << (speed.on_gpu || data.settings.data.format != "shards"
                      ? ""
                      : format(", and {:.0f} for a GPU, which augments by itself", speed.images_per_core_s_for_gpu()))
              << ".\n";
  const int cores = std::min(speed.all_threads(), hardware_cores());
  if (speed.busy_cores() < kCrowded * (1 - speed.waiting_share()) * cores)
    std::cout << format("Other programs ran: {} thread{} had {:.2f} cores. Only the figures per core count.\n",
                        speed.all_threads(), speed.all_threads() == 1 ? "" : "s", speed.busy_cores());
  std::cout << "Training that takes more images/s than the table shows waits for data: raise data.loader_threads while "
               "cores\nare free. The last line of owt train has the share of a step that waits, 'data N %'.\n";
  if (data.settings.data.format == "shards" && !cold)
    std::cout << "Files that are in memory are read faster than from the disk; --cold measures a first read.\n";
}

void print(const LoadedData& data, const std::vector<LoadSpeed>& speeds, bool cold) {
  const LoadSpeed& last = speeds.back();
  std::cout << format("{} training images in {}, read as {} says; {} worker{}, {} images a step, for the {}{}\n\n",
                      last.set_images, data.folder, data.recipe, last.workers, last.workers == 1 ? "" : "s",
                      data.settings.step_rows(), last.on_gpu ? "GPU" : "CPU", cold ? "; first read" : "");
  if (last.resident()) {
    std::cout << format("The GPU keeps these images and makes {:.0f} images/s of them; no loader thread is needed.\n",
                        last.images_per_s());
    return;
  }
  const bool decodes = last.on_gpu && data.settings.data.format == "shards";
  std::cout << format("{:>7} {:>10} {:>11} {:>16} {:>17}{}\n", "threads", "images/s", "busy cores", "images/s a core",
                      "wait for files %", decodes ? "  decoder" : "");
  for (const LoadSpeed& speed : speeds)
    std::cout << format("{:>7} {:>10.0f} {:>11.2f} {:>16.0f} {:>17.1f}{}\n", speed.all_threads(), speed.images_per_s(),
                        speed.busy_cores(), speed.images_per_core_s(), percent(speed.waiting_share()),
                        decodes ? format("  {:>7}", name_of(speed.decoder)) : "");
  print_stages(last);
  print_advice(last, data, cold);
}

OutputJson speed_json(const LoadSpeed& speed) {
  OutputJson json{{"threads_per_worker", speed.threads},
                  {"seconds", speed.seconds},
                  {"images", speed.images},
                  {"images_per_second", speed.images_per_s()}};
  if (speed.resident()) return json;
  if (speed.on_gpu) json["decoder"] = name_of(speed.decoder);
  json["images_per_core_second"] = speed.images_per_core_s();
  json["images_per_core_second_for_gpu"] = speed.images_per_core_s_for_gpu();
  json["waiting_share"] = speed.waiting_share();
  if (speed.copy_s > 0) json["copy_us_per_image"] = 1e6 * speed.copy_s;
  for (int i = 0; i < kLoadStages; ++i)
    json["us_per_image"][name_of(static_cast<LoadStage>(i))] = 1e6 * speed.stage_s(static_cast<LoadStage>(i));
  json["us_per_image"]["rest"] = 1e6 * speed.rest_s();
  return json;
}

OutputJson speeds_json(const LoadedData& data, const std::vector<LoadSpeed>& speeds, bool cold) {
  const LoadSpeed& last = speeds.back();
  OutputJson json{{"data", data.folder},
                  {"recipe", data.recipe},
                  {"format", data.settings.data.format},
                  {"images", last.set_images},
                  {"workers", last.workers},
                  {"device", last.on_gpu ? "cuda" : "cpu"},
                  {"resident", last.resident()},
                  {"cold", cold},
                  {"speeds", OutputJson::array()}};
  for (const LoadSpeed& speed : speeds) json["speeds"].push_back(speed_json(speed));
  return json;
}

}  // namespace

int command_bench_data(const Arguments& arguments) {
  Options options("owt bench-data",
                  "Measures how many images per second the loader makes, stage by stage, without training.");
  options.positional("DATA",
                     "a folder of prepared photographs or of CIFAR; or a recipe or a run, whose data is then read");
  options.option("recipe", "CONFIG",
                 "recipe whose crop, augmentation and batch are used (default: imagenet_resnet50 for photographs, "
                 "cifar10_resnet20 for CIFAR)");
  declare_planned(options);
  options.option("threads", "LIST",
                 "loader threads of each worker, such as 4, or several numbers to measure one after the other, such "
                 "as 1,2,4 (default: the recipe's data.loader_threads)");
  options.option("seconds", "S", "5", "seconds for each number of threads");
  options.flag("cold",
               "photographs: measure a first read; drops the files from the system's memory, and reads each image "
               "once at most");
  declare_json(options);
  if (!options.parse(arguments)) {
    std::cout << options.help();
    return 0;
  }
  const double seconds = options.number("seconds", {.low = 0.01, .high = 1e5});
  if (launch().several()) fail("owt bench-data measures in one process; start it without ", launch().by);
  const LoadedData data = data_from(options);
  const bool cold = options.boolean("cold");
  std::vector<LoadSpeed> speeds;
  for (const int threads : threads_from(options, data.settings))
    std::ranges::move(measure_decoders(data, {threads, seconds, cold}), std::back_inserter(speeds));
  if (options.boolean("json"))
    std::cout << json_lines(speeds_json(data, speeds, cold));
  else
    print(data, speeds, cold);
  return 0;
}

}  // namespace owt

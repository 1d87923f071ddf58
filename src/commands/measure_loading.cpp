#include "src/commands/measure_loading.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "src/comm/on_host.h"
#include "src/comm/threads.h"
#include "src/plan/plan_rows.h"
#include "src/system/log.h"
#include "src/train/job.h"

namespace owt {
namespace {

namespace fs = std::filesystem;
using LoadClock = std::chrono::steady_clock;

// docs/measurements/data.md: photographs with a short side of 256 pixels, JPEG of quality 90; the slower of two crops.
constexpr double kKnownImagesPerCore = 8390;
constexpr int64_t kKnownSide = 256;

double seconds_since(LoadClock::time_point begin) {
  return std::chrono::duration<double>(LoadClock::now() - begin).count();
}

// Pages that are mapped or not yet written stay, so the files must be closed.
void drop_from_memory(const std::string& folder) {
  for (const auto& entry : fs::directory_iterator(fs::path(folder) / "train")) {
    if (entry.path().extension() != ".tar") continue;
    const int file = ::open(entry.path().c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) continue;  // opening the data set reports it
    ::fdatasync(file);
    ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    ::close(file);
  }
}

// Labels stay as they are, because no network reads them.
Job job_to_load(Settings settings, const std::string& folder) {
  Job job;
  job.settings = std::move(settings);
  job.plan = job.settings.plan_to_run();
  job.train = open_split(job.settings, folder, Split::kTrain);
  job.statistics = statistics_of(job.settings, folder, job.train.get());
  job.augmenter = std::make_shared<Augmenter>(job.settings.data.augment, job.train->image(), job.statistics);
  job.corrupt = std::make_shared<CorruptRecords>(job.train->size());
  job.load_record = std::make_shared<LoadRecord>();
  return job;
}

double seconds_to_copy(int64_t bytes, const Stream& stream) {
  constexpr int kCopies = 10;
  const Tensor host = Tensor::shared_with(stream.device(), {bytes}, DType::kU8);
  Tensor copy({bytes}, DType::kU8, stream.device());
  copy.copy_from(host, stream);
  stream.synchronize();
  const auto begin = LoadClock::now();
  for (int i = 0; i < kCopies; ++i) copy.copy_from(host, stream);
  stream.synchronize();
  return seconds_since(begin) / kCopies;
}

// What one worker takes. Its threads continue until it ends, so rank 0 reads the record when its own time is over.
void take_batches(const Job& job, Communicator& comm, const LoadRequest& request, LoadSpeed& speed) {
  const Compute on = job.plan.request.on;
  const int64_t rows = rows_of(job.plan, job.plan.request.step_rows).of(comm.rank()).size();
  const Stream stream(on.device);
  auto begin = LoadClock::now();
  const auto batches = on_all_hosts(comm, [&] { return training_batches(job, comm.rank(), 0, 0); });
  LoadWork before;
  if (!request.cold) {
    // The first batch of each slot is written to new memory.
    for (int slot = 0; rows > 0 && slot < LoaderSettings{}.slots; ++slot) batches->next(stream);
    stream.synchronize();
    comm.host_barrier();
    begin = LoadClock::now();
    before = job.load_record->total();
  }
  double handed = 0;
  const int64_t most = request.cold ? batches->steps_per_epoch() : std::numeric_limits<int64_t>::max();
  for (int64_t step = 0; rows > 0 && step < most && seconds_since(begin) < request.seconds; ++step)
    handed += static_cast<double>(batches->next(stream).labels.shape().rows());
  stream.synchronize();
  if (comm.rank() == 0) {
    speed.work = job.load_record->total() - before;
    speed.seconds = seconds_since(begin);
  }
  const double all = on_host::sum(comm, std::vector{handed}, on.device).front();
  if (comm.rank() > 0) return;
  speed.images = speed.resident() ? static_cast<int64_t>(all) : speed.work.images;
  if (on.device != Device::kCpu && !speed.resident())
    speed.copy_s = seconds_to_copy(rows * job.train->image().elements(), stream) / static_cast<double>(rows);
}

}  // namespace

double LoadSpeed::waiting_share() const {
  const double all = work.times.work_s + work.times.wait_s;
  return all > 0 ? work.times.wait_s / all : 0;
}

double LoadSpeed::thread_s() const {
  return (work.times.work_s + work.times.wait_s) / static_cast<double>(work.images);
}

double LoadSpeed::stage_s(LoadStage stage) const {
  return work.staged_s > 0 ? thread_s() * work.stage_s[static_cast<size_t>(stage)] / work.staged_s : 0;
}

double LoadSpeed::rest_s() const {
  double rest = thread_s();
  for (int stage = 0; stage < kLoadStages; ++stage) rest -= stage_s(static_cast<LoadStage>(stage));
  return std::max(0.0, rest);
}

double LoadSpeed::images_per_core_s() const { return static_cast<double>(work.images) / work.times.work_s; }

double LoadSpeed::images_per_core_s_for_gpu() const {
  return images_per_core_s() / (1 - (stage_s(LoadStage::kAugment) + stage_s(LoadStage::kMix)) / thread_s());
}

LoadSpeed measure_loading(Settings settings, const std::string& folder, const LoadRequest& request) {
  if (settings.data.format == "synthetic")
    fail("the recipe draws its images (data.format is \"synthetic\"), so there is no data to read");
  if (request.cold && settings.data.format != "shards")
    fail("the first read is measured for prepared photographs only: ", settings.data.format,
         " is read as a whole when it is opened");
  OWT_CHECK(settings.data.decoder != Decoder::kAuto);
  settings.data.loader_threads = request.threads;
  if (request.cold) drop_from_memory(folder);
  const Job job = job_to_load(std::move(settings), folder);
  LoadSpeed speed{.set_images = job.train->size(),
                  .workers = job.plan.ranks(),
                  .threads = request.threads,
                  .on_gpu = job.plan.request.on.device != Device::kCpu,
                  .decoder = job.settings.data.decoder};
  run_ranks(
      job.plan.ranks(), 1, [&](Communicator& comm) { take_batches(job, comm, request, speed); },
      job.plan.request.on.device);
  return speed;
}

LoadNeed load_need(const Settings& settings, double images_per_s) {
  const std::string folder = data_folder(settings.data, "");
  const int64_t side = settings.data.crop.short_side;
  const double pixels = static_cast<double>(side * side) / (kKnownSide * kKnownSide);
  LoadNeed need{.images_per_s = images_per_s,
                .images_per_core_s = kKnownImagesPerCore / pixels,
                .source = format("documented for photographs of {} pixels{}; with --set data.dir=DIR it is measured",
                                 kKnownSide, pixels == 1 ? "" : format(", and scaled to {} pixels", side))};
  if (!has_images(settings.data, folder, Split::kTrain)) return need;
  Settings alone = settings;  // one worker here, with batches that fit anywhere
  alone.parallel = {};
  alone.run.device = "cpu";
  alone.run.precision = Precision::kFp32;
  alone.data.batch = 32;
  alone.data.batch_per_rank = 0;
  alone.data.accumulate = 1;
  alone.data.decoder = Decoder::kCpu;
  try {
    const LoadSpeed speed = measure_loading(std::move(alone), folder, {.threads = 1, .seconds = 0.5});
    need.images_per_core_s = speed.images_per_core_s_for_gpu();
    need.source = concat("measured on this machine with the photographs in ", folder);
  } catch (const Error& e) {
    log_info("the photographs in {} were not timed: {}", folder, e.what());
  }
  return need;
}

}  // namespace owt

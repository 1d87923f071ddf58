#include "src/commands/extract.h"

#include <optional>

#include "src/commands/photo_input.h"
#include "src/commands/run.h"
#include "src/core/threads.h"
#include "src/files/npy.h"
#include "src/plan/order.h"
#include "src/predict/memory_need.h"
#include "src/train/data_facts.h"
#include "src/train/inference.h"
#include "src/train/job.h"
#include "src/train/memory_check.h"
#include "src/train/session.h"

namespace owt {
namespace {

// Files have PyTorch's order: rows x C x H x W.
Shape file_shape(const Shape& rows) { return rows.rank() == 4 ? Shape{rows[0], rows[3], rows[1], rows[2]} : rows; }

Tensor in_file_order(const Tensor& y) {
  if (y.shape().rank() != 4) return y;
  Tensor out(file_shape(y.shape()));
  const int64_t channels = y.shape()[3], places = y.shape()[1] * y.shape()[2], row = channels * places;
  parallel_for(y.shape().rows(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n)
      for (int64_t place = 0; place < places; ++place)
        for (int64_t c = 0; c < channels; ++c)
          out.data()[n * row + c * places + place] = y.data()[n * row + place * channels + c];
  });
  return out;
}

Shape extract_data_set(const Settings& settings, const ExtractOptions& options, Inference& network) {
  Job job;
  job.settings = settings;
  job.plan = settings.plan_to_run();
  open_data(job, data_folder(settings.data, options.data), options.split, facts_of_run(settings, options.run_folder));
  const Dataset& images = *job.images(options.split);
  // The weights are in memory already. A GPU gets its images from the host for each batch.
  check_memory(network.plan(), [](const Plan& plan, int rank) {
    const int batches_beside = plan.request.on.device == Device::kCpu ? kLoadedBatches - 1 : -1;
    return step_bytes(plan, evaluation(plan, plan.request.step_rows), rank) +
           batches_beside * step_bytes(plan, {}, rank);
  });
  const Shape shape = file_shape(network.out().batch_of(images.size()));
  NpyWriter features(options.out, shape, DType::kF32);
  std::optional<NpyWriter> labels;
  if (!options.labels.empty()) labels.emplace(options.labels, Shape{images.size()}, DType::kI64);
  const auto batches = evaluation_batches(job, 0, options.split);
  for (int64_t i = 0; i < batches->steps_per_epoch(); ++i)
    features.write(in_file_order(network.run(batches->next(network.stream()).images)));
  if (labels) {
    Tensor all({images.size()}, DType::kI64);
    for (int64_t i = 0; i < images.size(); ++i) all.data<int64_t>()[i] = images.label(i);
    labels->write(all);
    labels->close();
  }
  features.close();
  return shape;
}

Tensor images_of(const PhotoInput& input, std::span<const std::string> files) {
  const LoadedPhotos loaded = load_photos(input, files);
  for (size_t i = 0; i < files.size(); ++i)
    if (!loaded.errors[i].empty()) fail(files[i], ": ", loaded.errors[i], "; leave it out");
  Tensor images(input.shape().batch_of(std::ssize(files)));
  const int64_t image = images.shape().row_elements();
  parallel_for(std::ssize(files), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      input.make(loaded.photos[static_cast<size_t>(i)], 0, images.data() + i * image);
  });
  return images;
}

Shape extract_photos(const Settings& settings, const ExtractOptions& options, Inference& network) {
  constexpr size_t kBatch = 32;
  const DataFacts facts = find_data_facts(settings, options.run_folder, options.data);
  const PhotoInput input(settings.data, facts.statistics);
  const std::span<const std::string> files = options.photos;
  const Shape shape = file_shape(network.out().batch_of(std::ssize(files)));
  NpyWriter features(options.out, shape, DType::kF32);
  for (size_t begin = 0; begin < files.size(); begin += kBatch)
    features.write(
        in_file_order(network.run(images_of(input, files.subspan(begin, std::min(kBatch, files.size() - begin))))));
  features.close();
  return shape;
}

}  // namespace

Shape extract(const Settings& settings, const ExtractOptions& options) {
  OWT_CHECK(options.photos.empty() || options.labels.empty(), "photos have no labels");
  check_outputs({options.out, options.labels});
  const Settings alone = for_one_rank(settings);
  const Session session(alone, options.threads, options.weights);
  log_device(alone);
  Inference network(alone, options.weights, options.layer);
  return options.photos.empty() ? extract_data_set(alone, options, network) : extract_photos(alone, options, network);
}

}  // namespace owt

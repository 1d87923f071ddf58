#include "src/commands/features.h"

#include <algorithm>
#include <span>
#include <utility>

#include "data/held_out.h"
#include "src/commands/photo_input.h"
#include "src/core/threads.h"
#include "src/plan/order.h"
#include "src/predict/memory_need.h"
#include "src/train/data_facts.h"
#include "src/train/data_identity.h"
#include "src/train/memory_check.h"

namespace owt {
namespace {

Job job_of(const Settings& settings) {
  Job job;
  job.settings = for_one_rank(settings);
  job.settings.run.canonical = false;  // there are no gradients
  job.plan = job.settings.plan_to_run();
  return job;
}

FeatureSource with_layer(FeatureSource source, const Model& model) {
  if (!source.layer.empty()) return source;
  if (model.layers.size() < 2)
    fail("model '", model.name, "' has a single layer, whose input is the image; name a layer");
  Config table = model.layers[model.layers.size() - 2];
  source.layer = table.string("name");
  return source;
}

Session started(const Settings& settings, const FeatureSource& source) {
  Session session(settings, source.threads, source.weights);
  log_device(settings);
  return session;
}

constexpr int64_t kPhotoBatch = 32;

std::shared_ptr<const Dataset>& images_of(Job& job, Split split) {
  return split == Split::kTrain ? job.train : split == Split::kTest ? job.test : job.validation;
}

Tensor photo_images(const PhotoInput& input, const LoadedPhotos& loaded, int view) {
  Tensor images(input.shape().batch_of(std::ssize(loaded.photos)));
  const int64_t image = images.shape().row_elements();
  parallel_for(std::ssize(loaded.photos), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      input.make(loaded.photos[static_cast<size_t>(i)], view, images.data() + i * image);
  });
  return images;
}

}  // namespace

Features::Features(const Settings& settings, FeatureSource source)
    : job_(job_of(settings)),
      source_(with_layer(std::move(source), job_.settings.model)),
      session_(started(job_.settings, source_)),
      views_(source_.mirrored ? Views::mirror() : Views()),
      network_(job_.settings, source_.weights, source_.layer) {
  if (source_.photos.empty()) open_images();
  check_room();
}

int64_t Features::images() const {
  return source_.photos.empty() ? job_.images(source_.split)->size() : std::ssize(source_.photos);
}

void Features::open_images() {
  const Split split = source_.split;
  open_data(job_, data_folder(job_.settings.data, source_.data), split, facts_of_run(job_.settings, source_.run_folder),
            source_.labels ? LabelsAre::kOutputs : LabelsAre::kUnused);
  if (split == Split::kValidation) check_held_out(job_, source_.weights, data_folder(job_.settings.data, source_.data));
  if (source_.numbers.empty() && source_.spread == 0) return;
  std::shared_ptr<const Dataset>& images = images_of(job_, split);
  const int64_t all = images->size();
  for (int64_t i = 0; i < std::min(source_.spread, all); ++i)
    source_.numbers.push_back(i * all / std::min(source_.spread, all));
  if (source_.numbers.back() >= images->size())
    fail("there is no image ", source_.numbers.back(), " in split ", name_of(split), ", which has ", images->size(),
         ", numbered from 0");
  images = some_of(std::move(images), source_.numbers);
}

// The first worker's weights are in memory already. A GPU gets its images from the host for each batch.
void Features::check_room() const {
  const int64_t kept = source_.kept ? row().batch_of(images()).elements() * size_of(DType::kF32) : 0;
  int64_t weights = 0;
  for (const Param* param : network_.net().params()) weights += param->bytes();
  check_memory(network_.plan(), [&](const Plan& plan, int rank) {
    const bool on_host = plan.request.on.device == Device::kCpu;
    const int64_t others = on_host ? source_.workers - 1 : 0;
    if (!source_.photos.empty()) return on_host ? kept + others * weights : 0;
    const int64_t of_worker = step_bytes(plan, evaluation(plan, plan.request.step_rows), rank) +
                              (on_host ? kLoadedBatches - 1 : -1) * step_bytes(plan, {}, rank);
    return of_worker + others * (of_worker + weights) + (on_host ? kept : 0);
  });
}

Tensor Features::outputs(Inference& network, const std::function<Tensor(int view)>& images_of) const {
  if (views_.count == 1) return network.run(images_of(views_.first));
  Tensor mean;
  for (int view = views_.first; view < views_.first + views_.count; ++view) {
    const Tensor y = network.run(images_of(view));
    if (!mean.defined()) mean = Tensor(y.shape()), std::fill_n(mean.data(), mean.elements(), 0.0f);
    for (int64_t i = 0; i < y.elements(); ++i) mean.data()[i] += y.data()[i] / static_cast<float>(views_.count);
  }
  return mean;
}

int64_t Features::batch_rows() const { return source_.photos.empty() ? job_.plan.request.step_rows : kPhotoBatch; }

void Features::each(const std::function<void(const Tensor& y)>& take) {
  const auto worker = [&](int rank, int ranks) {
    // Not owning for the first worker: this is its network.
    const auto network = rank == 0 ? std::shared_ptr<Inference>(&network_, [](Inference*) {})
                                   : std::make_shared<Inference>(job_.settings, source_.weights, source_.layer);
    return source_.photos.empty() ? of_data_set(rank, ranks, network) : of_photos(network);
  };
  session_.in_order<Tensor>(source_.workers, (images() + batch_rows() - 1) / batch_rows(), worker, take);
}

void Features::each_input(const std::function<void(const Tensor& images)>& take) {
  const auto batches = evaluation_batches(job_, 0, source_.split);
  for (int64_t i = 0; i < batches->steps_per_epoch(); ++i) take(batches->next(network_.stream()).images);
}

// The images of the worker's batches. Their source has every step once for each view.
Features::Make Features::of_data_set(int worker, int workers, const std::shared_ptr<Inference>& network) const {
  struct Dealt {
    Job job;
    std::unique_ptr<BatchSource> batches;  // refers to the job
  };
  const auto part = std::make_shared<Dealt>(Dealt{job_, nullptr});
  if (workers > 1) {
    std::vector<int64_t> numbers;
    for (int64_t i = 0; i < images(); ++i)
      if (i / batch_rows() % workers == worker) numbers.push_back(i);
    std::shared_ptr<const Dataset>& images = images_of(part->job, source_.split);
    images = some_of(std::move(images), std::move(numbers));
  }
  part->batches = evaluation_batches(part->job, 0, source_.split, views_);
  return [=, this](int64_t) {
    return outputs(*network, [&](int) { return part->batches->next(network->stream()).images; });
  };
}

Features::Make Features::of_photos(const std::shared_ptr<Inference>& network) const {
  const PhotoInput input(job_.settings.data,
                         find_data_facts(job_.settings, source_.run_folder, source_.data).statistics);
  return [=, this](int64_t batch) {
    const auto begin = static_cast<size_t>(batch * kPhotoBatch);
    const std::span<const std::string> files(source_.photos);
    const auto some = files.subspan(begin, std::min(static_cast<size_t>(kPhotoBatch), files.size() - begin));
    const LoadedPhotos loaded = load_photos(input, some);
    for (size_t i = 0; i < some.size(); ++i)
      if (!loaded.errors[i].empty()) fail(some[i], ": ", loaded.errors[i], "; leave it out");
    return outputs(*network, [&](int view) { return photo_images(input, loaded, view); });
  };
}

}  // namespace owt

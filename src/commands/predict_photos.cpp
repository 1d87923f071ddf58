#include "src/commands/predict_photos.h"

#include <algorithm>

#include "src/commands/json_output.h"
#include "src/commands/run.h"
#include "src/core/threads.h"
#include "src/train/data_facts.h"

namespace owt {

Classifier::Classifier(const Settings& settings, const ClassifyOptions& options)
    : settings_(for_one_rank(settings)),
      session_(settings_, options.threads, options.weights),
      options_(options),
      facts_(find_data_facts(settings_, options.run_folder, options.data)),
      input_(settings_.data, facts_.statistics),
      network_(settings_, options.weights) {
  log_device(settings_);
}

void Classifier::each(std::span<const std::string> files, const std::function<void(PhotoPrediction&)>& take) {
  static constexpr size_t kBatch = 32;
  using Answers = std::vector<PhotoPrediction>;
  const auto worker = [&](int rank, int) {
    // Not owning for the first worker: this is its network.
    const auto network = rank == 0 ? std::shared_ptr<Inference>(&network_, [](Inference*) {})
                                   : std::make_shared<Inference>(settings_, options_.weights);
    return [this, network, files](int64_t batch) {
      const size_t begin = static_cast<size_t>(batch) * kBatch;
      return classify(*network, files.subspan(begin, std::min(kBatch, files.size() - begin)));
    };
  };
  session_.in_order<Answers>(options_.workers, static_cast<int64_t>((files.size() + kBatch - 1) / kBatch), worker,
                             [&](Answers& answers) { std::for_each(answers.begin(), answers.end(), take); });
}

std::vector<PhotoPrediction> Classifier::classify(Inference& network, std::span<const std::string> files) const {
  std::vector<PhotoPrediction> answers(files.size());
  LoadedPhotos loaded = load_photos(input_, files);
  const std::vector<Photo>& photos = loaded.photos;
  std::vector<size_t> good;
  for (size_t i = 0; i < files.size(); ++i) {
    answers[i].file = files[i];
    answers[i].error = std::move(loaded.errors[i]);
    if (answers[i].error.empty()) good.push_back(i);
  }
  if (good.empty()) return answers;

  const Views& views = options_.views;
  const LossSettings& loss = settings_.loss;
  std::vector<MeanProbabilities> means(
      good.size(), MeanProbabilities(MeanProbabilities::kUnknown, views, loss.type, loss.margin.scale_or_1()));
  for (int view = views.first; view < views.first + views.count; ++view) {
    Tensor images(input_.shape().batch_of(std::ssize(good)));
    const int64_t image = images.shape().row_elements();
    parallel_for(std::ssize(good), 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        input_.make(photos[good[static_cast<size_t>(i)]], view, images.data() + i * image);
    });
    const Tensor logits = network.run(images);
    const auto classes = static_cast<size_t>(logits.shape().row_elements());
    for (size_t i = 0; i < good.size(); ++i) {
      means[i].add({logits.data() + i * classes, classes});
      if (means[i].views() < views.count) continue;
      answers[good[i]].top = means[i].top(options_.top);
      means[i] = MeanProbabilities();  // frees its memory
    }
  }
  return answers;
}

std::string Classifier::json(const std::vector<PhotoPrediction>& answers) const {
  OutputJson all = OutputJson::array();
  for (const PhotoPrediction& answer : answers) {
    OutputJson one{{"file", answer.file}};
    if (!answer.error.empty()) one["error"] = answer.error;
    for (const RankedClass& ranked : answer.top)
      one["top"].push_back(
          {{"class", ranked.index}, {"name", class_name(ranked.index)}, {"probability", ranked.probability}});
    all.push_back(one);
  }
  return json_lines(all);
}

std::string Classifier::class_name(int index) const {
  const auto at = static_cast<size_t>(index);
  return at < facts_.class_names.size() ? shown_class(facts_.class_names[at]) : std::to_string(index);
}

}  // namespace owt

#include "src/commands/verify.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <numeric>

#include "src/commands/json_output.h"
#include "src/commands/run.h"
#include "src/core/threads.h"
#include "src/files/verification_record.h"
#include "src/system/files.h"
#include "src/system/log.h"
#include "src/system/own_words.h"

namespace owt {
namespace {

// Scales each row to length 1; rows of zeros stay.
void normalize_rows(Tensor rows) {
  const int64_t columns = rows.shape().row_elements();
  parallel_for(rows.shape().rows(), 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      float* row = rows.data() + i * columns;
      const double length = std::sqrt(std::inner_product(row, row + columns, row, 0.0));
      if (length > 0) std::transform(row, row + columns, row, [=](float x) { return static_cast<float>(x / length); });
    }
  });
}

Tensor normalized_embeddings(Features& network) {
  const Shape all{network.images(), network.row().elements()};
  Tensor embeddings(all);
  int64_t done = 0;
  network.each([&](const Tensor& y) {
    const int64_t rows = y.shape().rows();
    embeddings.rows(done, done + rows).copy_from(y);
    normalize_rows(embeddings.rows(done, done + rows));
    done += rows;
  });
  return embeddings;
}

std::vector<ScoredPair> scored(const std::vector<ImagePair>& pairs, const Tensor& embeddings) {
  std::vector<ScoredPair> scores(pairs.size());
  const int64_t columns = embeddings.shape().row_elements();
  parallel_for(std::ssize(pairs), 16, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      const float *a = embeddings.data() + pairs[i].a * columns, *b = embeddings.data() + pairs[i].b * columns;
      scores[i] = {std::clamp(std::inner_product(a, a + columns, b, 0.0), -1.0, 1.0), pairs[i].same};
    }
  });
  return scores;
}

// Writes lines of text without holding all of them.
template <class List, class Line>
void write_lines(const std::string& path, const std::string& head, const List& list, const Line& line) {
  if (path.empty()) return;
  constexpr size_t kMostText = 1 << 20;
  AtomicFileWriter file(path);
  std::string text = head;
  for (size_t i = 0; i < list.size(); ++i) {
    text += line(i, list[i]);
    if (text.size() >= kMostText) file.write(text), text.clear();
  }
  file.write(text);
  file.close();
}

void write_files(const Verification& result, const std::vector<ScoredPair>& scores, const VerifyOptions& options) {
  const Roc& roc = result.roc;
  write_lines(options.similarities, "pair,same,similarity\n", scores, [](size_t i, const ScoredPair& pair) {
    return format("{},{},{:.9g}\n", i, pair.same ? 1 : 0, pair.similarity);
  });
  write_lines(options.roc, "threshold,false_accept_rate,true_accept_rate\n", roc.points,
              [&](size_t, const RocPoint& at) {
                return format("{:.9g},{:.9g},{:.9g}\n", at.threshold, roc.far(at), roc.tar(at));
              });
  if (!options.json.empty()) write_file_atomically(options.json, verification_json(result, options));
}

// The folder may belong to another user.
void store_in_run(const Verification& result, const VerifyOptions& options) {
  namespace fs = std::filesystem;
  if (options.run.empty()) return;
  const fs::path folder = fs::path(options.run) / kVerificationFolder;
  bool made = false;
  try {
    made = fs::create_directory(folder);
    write_file_atomically((folder / fs::path(options.pairs).stem()).string() + ".json",
                          verification_json(result, options));
  } catch (const std::exception& e) {
    log_warn("the run does not get the result: {}", own_words(e));
    std::error_code ignored;
    if (made) fs::remove(folder, ignored);  // it is empty
  }
}

double mean_of(const std::vector<FoldAccuracy>& folds, double FoldAccuracy::*field) {
  double sum = 0;
  for (const FoldAccuracy& fold : folds) sum += fold.*field;
  return sum / static_cast<double>(folds.size());
}

}  // namespace

double Verification::accuracy() const { return mean_of(folds, &FoldAccuracy::accuracy); }
double Verification::threshold() const { return mean_of(folds, &FoldAccuracy::threshold); }

double Verification::deviation() const {
  double sum = 0;
  for (const FoldAccuracy& fold : folds) sum += std::pow(fold.accuracy - accuracy(), 2);
  return std::sqrt(sum / static_cast<double>(folds.size()));
}

Verification verify(const Settings& settings, ImagePairs pairs, const VerifyOptions& options) {
  check_outputs({options.roc, options.similarities, options.json});
  FeatureSource source = options.source;
  source.photos = std::move(pairs.files);
  source.numbers = std::move(pairs.numbers);
  source.labels = false;
  source.kept = true;
  Features network(settings, std::move(source));
  const auto begin = std::chrono::steady_clock::now();
  const std::vector<ScoredPair> scores = scored(pairs.pairs, normalized_embeddings(network));
  Verification result{.layer = network.layer(),
                      .images = network.images(),
                      .features = network.row().elements(),
                      .folds = fold_accuracies(scores),
                      .roc = roc_of(scores)};
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  write_files(result, scores, options);
  store_in_run(result, options);
  return result;
}

std::string verification_text(const Verification& result, const VerifyOptions& options) {
  const Roc& roc = result.roc;
  std::string text = format(
      "{} pairs, {} same and {} different, of {} images; {} values of '{}'{}\n"
      "accuracy {:.2f} % +- {:.2f} % over {} folds, threshold {:.4f}\n",
      result.pairs(), roc.same, roc.different, result.images, result.features, result.layer,
      options.source.mirrored ? ", mean with the mirror image" : "", 100 * result.accuracy(), 100 * result.deviation(),
      kFolds, result.threshold());
  for (const double far : options.fars) {
    const RocPoint& at = roc.at_far(far);
    text += format("TAR {:.2f} % at FAR {:g}, threshold {:.4f}: {} of {} different pairs accepted\n", 100 * roc.tar(at),
                   far, at.threshold, at.different, roc.different);
  }
  return text + format("EER {:.2f} %, AUC {:.5f}\n", 100 * roc.equal_error_rate(), roc.area());
}

std::string verification_json(const Verification& result, const VerifyOptions& options) {
  using Json = OutputJson;
  const Roc& roc = result.roc;
  Json json{{"format", kVerificationFormat},
            {"weights", options.source.weights},
            {"layer", result.layer},
            {"features", result.features},
            {"mirrored", options.source.mirrored},
            {"images", result.images},
            {"same_pairs", roc.same},
            {"different_pairs", roc.different},
            {"accuracy", result.accuracy()},
            {"accuracy_deviation", result.deviation()},
            {"threshold", result.threshold()}};
  for (const FoldAccuracy& fold : result.folds)
    json["folds"].push_back({{"accuracy", fold.accuracy}, {"threshold", fold.threshold}});
  for (const double far : options.fars) {
    const RocPoint& at = roc.at_far(far);
    json["at_far"].push_back(
        {{"far", far}, {"tar", roc.tar(at)}, {"threshold", at.threshold}, {"accepted_different_pairs", at.different}});
  }
  for (const auto& [far, tar] : roc.curve()) json["roc"].push_back({{"far", far}, {"tar", tar}});
  json["equal_error_rate"] = roc.equal_error_rate();
  json["area_under_roc"] = roc.area();
  json["seconds"] = result.seconds;
  return json_lines(json);
}

}  // namespace owt

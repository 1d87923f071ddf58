// `owt verify`: compares the embeddings of pairs of images.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/commands/features.h"
#include "src/commands/image_pairs.h"
#include "src/commands/verification.h"

namespace owt {

struct VerifyOptions {
  FeatureSource source{};      // its photos and numbers come from the pairs
  std::vector<double> fars{};  // false accept rates to report, above 0 and below 1
  std::string roc{};           // CSV file to write, a line for each point; empty: none
  std::string similarities{};  // CSV file to write, a line for each pair; empty: none
  std::string json{};          // JSON file to write; empty: none
  std::string run{};           // run folder to store the JSON in (verification_record.h); empty: none
  std::string pairs{};         // path of the list, whose name the JSON in the run folder has
};

struct Verification {
  std::string layer{};
  int64_t images = 0, features = 0;
  std::vector<FoldAccuracy> folds{};
  Roc roc{};
  double seconds = 0;  // duration without reading the weights

  int64_t pairs() const { return roc.same + roc.different; }
  double accuracy() const;   // mean over the folds
  double deviation() const;  // standard deviation of the folds' accuracies, with divisor kFolds
  double threshold() const;  // mean over the folds
};

// The cosine similarity of the two embeddings of each pair, and what follows from it. The similarity is 0 if an
// embedding is 0. Memory holds the embeddings of all images, 4 bytes a value, and the pairs. Throws Error. A run folder
// that cannot be written to is only a warning.
Verification verify(const Settings& settings, ImagePairs pairs, const VerifyOptions& options);

std::string verification_text(const Verification& result, const VerifyOptions& options);
std::string verification_json(const Verification& result, const VerifyOptions& options);

}  // namespace owt

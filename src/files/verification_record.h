// What `owt verify` found for a list of pairs of images. It stores this in the folder `verification` of the run, in a
// file for each list.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace owt {

constexpr const char* kVerificationFolder = "verification";
constexpr const char* kVerificationFormat = "owt verification 1";

struct AcceptRates {
  double far = 0, tar = 0;  // shares of different and of same pairs
};

struct VerificationRecord {
  std::string name;     // file name of the list without its extension
  std::string weights;  // the weights file
  std::string layer;    // the layer whose outputs are the embedding
  int64_t features = 0;
  bool mirrored = false;  // the mean with the embedding of the mirror image
  int64_t images = 0, same_pairs = 0, different_pairs = 0;
  double accuracy = 0, deviation = 0;  // mean and standard deviation over the folds
  double equal_error_rate = 0, area_under_roc = 0;
  std::vector<AcceptRates> at_far{};  // at the FARs that were asked for
  std::vector<AcceptRates> roc{};     // FARs increase from above 0 to 1

  // Throws Error with `path` if the text is not the JSON of `owt verify`.
  static VerificationRecord from_json(const std::string& text, const std::string& path);
};

// The records in a run folder, by name. A file that cannot be read is left out, with a line in `wrong`; so are files
// beyond kMostVerifications.
constexpr size_t kMostVerifications = 24;
std::vector<VerificationRecord> verifications_of(const std::string& run, std::vector<std::string>& wrong);

}  // namespace owt

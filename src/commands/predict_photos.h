// `owt predict`: the classes that a trained network predicts for photos.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "src/commands/photo_input.h"
#include "src/train/data_facts.h"
#include "src/train/inference.h"
#include "src/train/predictions.h"
#include "src/train/session.h"

namespace owt {

struct ClassifyOptions {
  std::string weights;     // safetensors file
  std::string run_folder;  // for the data's facts (data_facts.h); empty: none
  std::string data;        // the data set, for the same facts; empty: none
  int threads = 0;         // 0: all cores
  Views views{};           // views of each photo
  int top = 5;             // most classes of an answer
};

struct PhotoPrediction {
  std::string file;
  std::string error;             // why there is no answer; empty: there is one
  std::vector<RankedClass> top;  // in descending order
};

class Classifier {
 public:
  Classifier(const Settings& settings, const ClassifyOptions& options);

  static constexpr int64_t kBatch = 32;  // a good number of photos for each call

  // Returns answers in the order of the files, for as many files as memory allows. A file that is no photo has an error
  // in its answer.
  std::vector<PhotoPrediction> classify(std::span<const std::string> files);
  std::string class_name(int index) const;  // its number if it has no name
  // [{"file": ..., "top": [{"class": 3, "name": "cat", "probability": 0.9}, ...]}, {"file": ..., "error": ...}, ...]
  std::string json(const std::vector<PhotoPrediction>& answers) const;

 private:
  Settings settings_;
  Session session_;
  ClassifyOptions options_;
  DataFacts facts_;
  PhotoInput input_;
  Inference network_;
};

}  // namespace owt

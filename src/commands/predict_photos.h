// `owt predict`: the classes that a trained network predicts for photos.
#pragma once

#include <functional>
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
  int workers = 1;         // threads with their own networks, which share the photos
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

  // Calls take() with the answers of all files in order. A file that is no photo has an error in its answer.
  void each(std::span<const std::string> files, const std::function<void(PhotoPrediction&)>& take);
  // Returns the same answers, for as many files as memory allows.
  std::vector<PhotoPrediction> classify(std::span<const std::string> files) { return classify(network_, files); }
  std::string class_name(int index) const;  // its number if it has no name
  // [{"file": ..., "top": [{"class": 3, "name": "cat", "probability": 0.9}, ...]}, {"file": ..., "error": ...}, ...]
  std::string json(const std::vector<PhotoPrediction>& answers) const;

 private:
  std::vector<PhotoPrediction> classify(Inference& network, std::span<const std::string> files) const;

  Settings settings_;
  Session session_;
  ClassifyOptions options_;
  DataFacts facts_;
  PhotoInput input_;
  Inference network_;
};

}  // namespace owt

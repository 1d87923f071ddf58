// `owt predict`: what a trained network takes photos for.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "src/train/commands/photo_input.h"
#include "src/train/data_facts.h"
#include "src/train/inference.h"
#include "src/train/predictions.h"
#include "src/train/session.h"

namespace owt {

struct ClassifyOptions {
  std::string weights;     // safetensors file
  std::string run_folder;  // for the data's facts (data_facts.h); empty: none
  std::string data;        // the same
  int threads = 0;         // 0: all cores
  Views views{};           // of each photo
  int top = 5;             // classes of each answer, at most
};

struct Answer {
  std::string file;
  std::string error;             // why there is none; empty: there is one
  std::vector<RankedClass> top;  // falling
};

class Classifier {
 public:
  Classifier(const Settings& settings, const ClassifyOptions& options);

  static constexpr int64_t kBatch = 32;  // photos that are worth giving at a time

  // In the order of the files, as many as there is memory for. A file that is no photo says so in its answer.
  std::vector<Answer> classify(std::span<const std::string> files);
  std::string class_name(int index) const;  // its number where it has none
  // [{"file": ..., "top": [{"class": 3, "name": "cat", "probability": 0.9}, ...]}, {"file": ..., "error": ...}, ...]
  std::string json(const std::vector<Answer>& answers) const;

 private:
  Settings settings_;
  Session session_;
  ClassifyOptions options_;
  DataFacts facts_;
  PhotoInput input_;
  Inference network_;
};

}  // namespace owt

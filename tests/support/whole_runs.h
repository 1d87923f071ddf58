// Runs of the small recipe through train(), each in a separate folder.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "src/commands/run.h"
#include "src/files/checkpoint_files.h"
#include "src/system/files.h"
#include "tests/support/runs.h"
#include "tests/support/temp_folder.h"

namespace owt {

inline const Overrides kEveryStepLogged{{"run.log_every", "1"}, {"schedule.epochs", "4"}};  // 5 steps per epoch

class WholeRuns {
 protected:
  TrainOutcome run(const std::string& out, const Overrides& changes, const std::string& resume = "",
                   const std::string& weights = "") {
    TrainOptions options;
    options.out = path(out);
    options.resume = resume;
    options.start.file = weights;
    options.threads = 1;
    return train(small_settings(kSmallRecipe, changes), options);
  }
  std::string path(const std::string& name) const { return (std::filesystem::path(folder_.path()) / name).string(); }
  std::string weights_of(const std::string& out) const {
    return *newest_checkpoint(path(out)) + "/weights.safetensors";
  }
  std::string optimizer_of(const std::string& out) const {
    return *newest_checkpoint(path(out)) + "/optimizer.safetensors";
  }

  struct TrainLine {
    int64_t step = 0;
    double loss = 0;
  };
  // The lines of metrics.jsonl about evaluations, in file order, without the time, which comes last.
  static std::vector<std::string> evaluations(const std::string& run) {
    std::vector<std::string> all = text_lines(run + "/metrics.jsonl");
    std::erase_if(all, [](const std::string& line) { return line.find("\"eval\"") == std::string::npos; });
    for (std::string& line : all) line = line.substr(0, line.find(",\"seconds\""));
    return all;
  }
  // The training lines of metrics.jsonl, in file order.
  static std::vector<TrainLine> train_lines(const std::string& run) {
    std::vector<TrainLine> all;
    std::ifstream file(run + "/metrics.jsonl");
    for (std::string line; std::getline(file, line);) {
      TrainLine found;
      if (line.find("\"train\"") == std::string::npos) continue;
      EXPECT_EQ(std::sscanf(line.c_str() + line.find("\"step\""), "\"step\":%ld", &found.step), 1) << line;
      EXPECT_EQ(std::sscanf(line.c_str() + line.find("\"loss\""), "\"loss\":%lf", &found.loss), 1) << line;
      all.push_back(found);
    }
    return all;
  }
  // The last training loss of each step.
  static std::map<int64_t, double> losses(const std::string& run) {
    std::map<int64_t, double> all;
    for (const TrainLine& line : train_lines(run)) all[line.step] = line.loss;
    return all;
  }

  TempFolder folder_;
};

}  // namespace owt

// CSV files without quoted fields, written and read by tests.
#pragma once

#include <sstream>
#include <string>
#include <vector>

#include "src/system/files.h"

namespace owt {

using CsvLine = std::vector<std::string>;

inline std::vector<CsvLine> read_csv(const std::string& path) {
  std::vector<CsvLine> lines;
  std::istringstream file(read_file(path));
  for (std::string line; std::getline(file, line);) {
    lines.emplace_back();
    std::istringstream fields(line + ",");
    for (std::string field; std::getline(fields, field, ',');) lines.back().push_back(field);
  }
  return lines;
}

// A line of `owt eval --predictions`.
struct PredictedLine {
  int64_t index = 0;
  std::string name, label_name;
  int label = 0;
  struct Top {
    int index = 0;
    std::string name;
    double probability = 0;
  };
  std::vector<Top> top;
};

inline std::vector<PredictedLine> read_predictions(const std::string& path) {
  std::vector<PredictedLine> all;
  std::vector<CsvLine> lines = read_csv(path);
  for (size_t i = 1; i < lines.size(); ++i) {
    const CsvLine& fields = lines[i];
    PredictedLine line{std::stoll(fields.at(0)), fields.at(1), fields.at(3), std::stoi(fields.at(2)), {}};
    for (size_t t = 4; t + 2 < fields.size(); t += 3)
      line.top.push_back({std::stoi(fields[t]), fields[t + 1], std::stod(fields[t + 2])});
    all.push_back(line);
  }
  return all;
}

}  // namespace owt

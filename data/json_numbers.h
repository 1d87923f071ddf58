// Numbers from the small JSON files of a prepared data set.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace owt {

class JsonNumbers {
 public:
  explicit JsonNumbers(const std::string& path);  // throws Error naming the file if it cannot be read

  // The value under a key. Both throw Error naming the file and the key.
  int64_t count(const std::string& key) const;  // an integer >= 0
  // `count` numbers from a list, or from a list of lists in order.
  std::vector<double> numbers(const std::string& key, size_t count) const;

 private:
  const std::vector<double>& all(const std::string& key) const;  // empty if there are none

  std::string path_;
  std::map<std::string, std::vector<double>> values_;
};

}  // namespace owt

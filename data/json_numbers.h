// Numbers out of the small JSON files beside the shards.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace owt {

class JsonNumbers {
 public:
  explicit JsonNumbers(const std::string& path);  // throws Error naming the file where it cannot be read

  // What stands under a key. Throw Error naming the file and the key.
  int64_t count(const std::string& key) const;  // a whole number, not negative
  // `count` numbers in a list, or in a list of lists one after the other.
  std::vector<double> numbers(const std::string& key, size_t count) const;

 private:
  const std::vector<double>& all(const std::string& key) const;  // empty where there are none

  std::string path_;
  std::map<std::string, std::vector<double>> values_;
};

}  // namespace owt

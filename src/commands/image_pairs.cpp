#include "src/commands/image_pairs.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <unordered_map>

#include "src/system/check.h"
#include "src/system/printable.h"

namespace owt {
namespace {

using Words = std::array<std::string_view, 3>;

// The three words of a line; false if there are more or fewer.
bool split_pair(std::string_view line, Words& words) {
  const std::string_view separators = line.find('\t') == line.npos ? " " : "\t";
  size_t count = 0;
  for (size_t begin = 0, end = 0; begin < line.size(); begin = end) {
    end = std::min(line.find_first_of(separators, begin), line.size());
    if (end == begin) {
      ++end;
    } else if (count == words.size()) {
      return false;
    } else {
      words[count++] = line.substr(begin, end - begin);
    }
  }
  return count == words.size() && (words[2] == "0" || words[2] == "1");
}

bool read_number(std::string_view word, int64_t& number) {
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  return error == std::errc() && end == word.data() + word.size() && number >= 0;
}

// Collects pairs line by line; a list may have many millions.
class PairList {
 public:
  explicit PairList(const std::string& path) : path_(path), folder_(std::filesystem::path(path).parent_path()) {}

  void add(std::string_view line) {
    ++line_;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.find_first_not_of(" \t") == line.npos) return;
    Words words;
    if (!split_pair(line, words)) refuse(line, "two images and 1 (the same) or 0 (different)");
    int64_t number = 0;
    if (all_.pairs.empty()) numbered_ = read_number(words[0], number) && read_number(words[1], number);
    all_.pairs.push_back({image(words[0], line), image(words[1], line), words[2] == "1"});
  }

  ImagePairs finish() {
    if (all_.pairs.empty()) fail(path_, " has no pairs; wanted lines `A B 1` or `A B 0`");
    if (!numbered_) return std::move(all_);
    for (const ImagePair& pair : all_.pairs) all_.numbers.insert(all_.numbers.end(), {pair.a, pair.b});
    std::ranges::sort(all_.numbers);
    const auto [rest, end] = std::ranges::unique(all_.numbers);
    all_.numbers.erase(rest, end);
    const auto place = [&](int64_t number) {
      return std::ranges::lower_bound(all_.numbers, number) - all_.numbers.begin();
    };
    for (ImagePair& pair : all_.pairs) pair.a = place(pair.a), pair.b = place(pair.b);
    return std::move(all_);
  }

 private:
  [[noreturn]] void refuse(std::string_view line, const char* wanted) const {
    fail(path_, ":", line_, ": wanted ", wanted, ", found '", printable(std::string(line.substr(0, 80))), "'");
  }

  // The number itself, or the place of the file.
  int64_t image(std::string_view word, std::string_view line) {
    int64_t number = 0;
    if (numbered_) {
      if (!read_number(word, number)) refuse(line, "numbers of images, as in the first line");
      return number;
    }
    const auto [found, added] = files_.try_emplace(std::string(word), std::ssize(all_.files));
    if (added) all_.files.push_back((folder_ / word).string());
    return found->second;
  }

  std::string path_;
  std::filesystem::path folder_;
  int64_t line_ = 0;
  bool numbered_ = false;
  std::unordered_map<std::string, int64_t> files_{};
  ImagePairs all_{};
};

}  // namespace

ImagePairs read_pairs(const std::string& path) {
  if (std::filesystem::is_directory(path)) fail(path, " is a folder, not a list of pairs");
  std::ifstream file(path);
  if (!file) fail("cannot read ", path, ": ", std::strerror(errno));
  PairList list(path);
  for (std::string line; std::getline(file, line);) list.add(line);
  if (file.bad()) fail("cannot read ", path, ": ", std::strerror(errno));
  return list.finish();
}

}  // namespace owt

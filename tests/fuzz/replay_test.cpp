// Runs the fuzz targets without a fuzzer, on their seeds and some thousand mutations of them, which are the same in
// every run. This takes seconds and needs no libFuzzer, so every change must pass it. run.sh in this folder searches
// for new inputs; the inputs that it finds become seeds. An input that ends the process is left in a file.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "src/system/files.h"
#include "tests/fuzz/input.h"

// OWT_FUZZ_TARGETS is TARGET(config) TARGET(dataset) and so on, one for each *_fuzz.cpp. Their functions, which have
// the same name for libFuzzer, are compiled under the names of the files.
#define TARGET(name) extern "C" int name##_fuzz(const uint8_t* bytes, size_t count);
OWT_FUZZ_TARGETS
#undef TARGET

namespace owt {
namespace {

namespace fs = std::filesystem;

struct FuzzTarget {
  std::string name;
  int (*run)(const uint8_t*, size_t);
};
#define TARGET(name) {#name, name##_fuzz},
const std::vector<FuzzTarget> kTargets{OWT_FUZZ_TARGETS};
#undef TARGET

const fs::path kRoot = OWT_SOURCE_DIR;
constexpr size_t kMostBytes = 1 << 16;
constexpr int kMutations = 20000;
constexpr rlim_t kMostMemory = rlim_t{2} << 30;  // in addition to the memory in use when a target begins

std::vector<std::string> seeds_of(const std::string& target) {
  std::vector<fs::path> files;
  const auto add = [&](const char* folder, const std::string& begin, const std::string& end) {
    for (const fs::directory_entry& entry : fs::directory_iterator(kRoot / folder)) {
      const std::string name = entry.path().filename();
      if (entry.is_regular_file() && name.starts_with(begin) && name.ends_with(end)) files.push_back(entry.path());
    }
  };
  add("tests/fuzz/seeds", target + "_", "");
  if (target == "config")
    for (const char* folder : {"configs", "configs/models"}) add(folder, "", ".toml");
  std::sort(files.begin(), files.end());  // a folder has no order
  std::vector<std::string> seeds;
  for (const fs::path& file : files) seeds.push_back(read_file(file.string()));
  return seeds;
}

// The words of a dictionary of libFuzzer: name="word" or "word", with \\, \" and \x12.
std::vector<std::string> dictionary_of(const std::string& target) {
  std::vector<std::string> words;
  std::ifstream file(kRoot / ("tests/fuzz/" + target + ".dict"));
  for (std::string line; std::getline(file, line);) {
    const size_t begin = line.find('"') + 1, end = line.rfind('"');
    if (line.starts_with('#') || begin > end || end == std::string::npos) continue;
    std::string& word = words.emplace_back();
    for (size_t i = begin; i < end; ++i) {
      if (line[i] == '\\' && line[++i] == 'x') {
        word += static_cast<char>(std::stoi(line.substr(i + 1, 2), nullptr, 16));
        i += 2;
      } else {
        word += line[i];
      }
    }
  }
  return words;
}

// Mutations like a fuzzer's. Random numbers come from the engine directly, because distributions differ between
// libraries.
class Mutations {
 public:
  explicit Mutations(const std::string& target) : seeds_(seeds_of(target)), words_(dictionary_of(target)) {}

  const std::vector<std::string>& seeds() const { return seeds_; }

  std::string next() {
    std::string input = one_of(seeds_);
    for (size_t left = 1 + below(5); left > 0; --left) mutate(input);
    if (input.size() > kMostBytes) input.resize(kMostBytes);
    return input;
  }

 private:
  size_t below(size_t bound) { return bound == 0 ? 0 : random_() % bound; }
  template <class List>
  const typename List::value_type& one_of(const List& list) {
    return list[below(list.size())];
  }
  // Mostly short, because a long one leaves little of an input.
  std::string part_of(const std::string& text) {
    const size_t at = below(text.size());
    return text.substr(at, 1 + below(below(4) == 0 ? text.size() : 16));
  }

  void mutate(std::string& input) {
    static const std::array<std::string, 12> numbers{"0",     "-1",         "1",          "255",
                                                     "65536", "2147483648", "4294967296", "9223372036854775807",
                                                     "1e308", "-1e-320",    "nan",        "16"};
    static const std::array<uint64_t, 10> extremes{0,      1,          0x7f,       0x80,       0xff,
                                                   0xffff, 0x7fffffff, 0x80000000, 0xffffffff, 0xffffffffffffffff};
    const size_t at = below(input.size() + 1);
    switch (below(9)) {
      case 0:
        if (at < input.size()) input[at] ^= static_cast<char>(1 << below(8));
        break;
      case 1:
        if (at < input.size()) input[at] = static_cast<char>(random_());
        break;
      case 2:
        input.erase(at, part_of(input).size());
        break;
      case 3:
        input.insert(at, part_of(input));
        break;
      case 4:
        input.insert(at, part_of(one_of(seeds_)));
        break;
      case 5:
        input.resize(at);
        break;
      case 6:
        if (!words_.empty()) input.replace(at, below(2) * part_of(input).size(), one_of(words_));
        break;
      case 7: {  // replace the digits after a place by another number
        const size_t begin = std::min(input.find_first_of("0123456789", at), input.size());
        const size_t end = std::min(input.find_first_not_of("0123456789.", begin), input.size());
        input.replace(begin, end - begin, one_of(numbers));
        break;
      }
      case 8: {  // a field of 1, 2, 4 or 8 bytes, in either order
        const uint64_t value = one_of(extremes) + below(3) - 1;
        const size_t bytes = size_t{1} << below(4);
        std::string field(reinterpret_cast<const char*>(&value), bytes);
        if (below(2) == 0) std::reverse(field.begin(), field.end());
        input.replace(at, bytes, field);
        break;
      }
    }
  }

  std::vector<std::string> seeds_, words_;
  std::mt19937_64 random_;
};

// The input that is being read, and the file that it is left in if that ends the process.
std::string current_input, left_file;

extern "C" void leave_input(int) {
  const int file = open(left_file.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0644);
  const auto put = [](int to, const std::string& bytes) {
    return write(to, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size());
  };
  if (put(file, current_input)) put(STDERR_FILENO, "broken by the input in " + left_file + "\n");
}

class Replay : public ::testing::TestWithParam<FuzzTarget> {
 protected:
  void SetUp() override {
    getrlimit(RLIMIT_AS, &memory_before_);
    size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlim_t most = pages * static_cast<rlim_t>(getpagesize()) + kMostMemory;
    const rlimit limit{std::min(most, memory_before_.rlim_max), memory_before_.rlim_max};
    setrlimit(RLIMIT_AS, &limit);
    left_file = (fs::current_path() / ("fuzz-" + GetParam().name)).string();
    const stack_t stack{stack_.data(), 0, stack_.size()};  // the normal stack may be used up
    sigaltstack(&stack, &stack_before_);
    struct sigaction action {};
    action.sa_handler = leave_input;
    action.sa_flags = SA_ONSTACK | static_cast<int>(SA_RESETHAND);  // the signal occurs again, and ends the process
    for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &action, &actions_before_[i]);
  }
  void TearDown() override {
    for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &actions_before_[i], nullptr);
    sigaltstack(&stack_before_, nullptr);
    setrlimit(RLIMIT_AS, &memory_before_);
  }

  // noexcept: any exception other than Error ends the process here.
  static void read(std::string bytes) noexcept {
    current_input = std::move(bytes);
    GetParam().run(reinterpret_cast<const uint8_t*>(current_input.data()), current_input.size());
  }

 private:
  static constexpr std::array kSignals{SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL};
  std::array<char, 1 << 16> stack_{};
  stack_t stack_before_{};
  std::array<struct sigaction, kSignals.size()> actions_before_{};
  rlimit memory_before_{};
};

TEST_P(Replay, AnErrorOrWhatTheReaderPromises) {
  Mutations mutations(GetParam().name);
  ASSERT_FALSE(mutations.seeds().empty());
  read("");
  for (const std::string& seed : mutations.seeds()) read(seed);
  for (int i = 0; i < kMutations; ++i) read(mutations.next());
}

INSTANTIATE_TEST_SUITE_P(Targets, Replay, ::testing::ValuesIn(kTargets),
                         [](const auto& target) { return target.param.name; });

}  // namespace
}  // namespace owt

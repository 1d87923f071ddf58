#include "tests/support/margins.h"

#include <cstdio>
#include <cstdlib>

#include "src/system/log.h"

namespace owt::margins {
namespace {

class Printer : public testing::EmptyTestEventListener {
  void OnTestProgramEnd(const testing::UnitTest&) override {
    for (const std::string& line : recorder->lines()) std::printf("margin %s\n", line.c_str());
  }
};

[[maybe_unused]] const bool listens = [] {
  if (!std::getenv("OWT_TEST_MARGINS")) return false;
  static Recorder of_program;
  recorder = &of_program;
  testing::UnitTest::GetInstance()->listeners().Append(new Printer);
  return true;
}();

}  // namespace

void Recorder::record(const Place& place, double value, double bound, Kind kind) {
  const double share = value == 0 ? 0 : value / bound;
  if (std::isnan(share)) return;
  const std::string file = place.file;
  const size_t folder = file.rfind("tests/");
  const testing::TestInfo* test = testing::UnitTest::GetInstance()->current_test_info();
  const std::string name = test ? concat(test->test_suite_name(), ".", test->name()) : "no test";
  const std::lock_guard lock(mutex_);
  Margin& margin =
      margins_[concat(folder == std::string::npos ? file : file.substr(folder), ":", place.line, " ", name)];
  if (share > margin.share) margin = {share, value, bound, kind};
}

std::vector<std::string> Recorder::lines() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::pair<double, std::string>> sorted;
  for (const auto& [place, margin] : margins_)
    sorted.emplace_back(-margin.share,
                        format("{} {:.4f} {:.9g} {:.9g} {}", margin.kind == Kind::kOrder ? "order" : "error",
                               margin.share, margin.value, margin.bound, place));
  std::sort(sorted.begin(), sorted.end());
  std::vector<std::string> lines;
  for (auto& [share, line] : sorted) lines.push_back(std::move(line));
  return lines;
}

}  // namespace owt::margins

// --max-skipped of owt prepare: a number of images, or a percentage.
#pragma once

#include <charconv>
#include <cmath>
#include <cstdint>
#include <string>
#include <system_error>

#include "src/commands/options.h"

namespace owt {

class MostSkipped {
 public:
  static void declare(Options& options) {
    options.option("max-skipped", "N", "0.1%", "fail if more images than this cannot be read: a number, or per cent");
  }

  // Throws UsageError.
  explicit MostSkipped(const Options& options) {
    const std::string text = options.string("max-skipped");
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value_);
    const std::string unit(end, text.data() + text.size());
    percent_ = unit == "%";
    if (error != std::errc() || !(value_ >= 0 && value_ <= (percent_ ? 100 : 1e15)) ||
        !(percent_ || (unit.empty() && value_ == std::floor(value_))))
      throw UsageError("--max-skipped " + text + ": wanted a number of images, or per cent of them as in 0.1%");
  }

  int64_t of(int64_t photos) const {
    return static_cast<int64_t>(percent_ ? value_ / 100 * static_cast<double>(photos) : value_);
  }

 private:
  double value_ = 0;
  bool percent_ = false;
};

}  // namespace owt

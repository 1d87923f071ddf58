#include "src/system/units.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <utility>

#include "src/system/check.h"

namespace owt {
namespace {

struct Quantity {
  double number;
  std::string unit;
};

Quantity number_and_unit(const std::string& text, const char* wanted) {
  Quantity found{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), found.number);
  if (error != std::errc() || !std::isfinite(found.number) || found.number < 0)
    fail("'", text, "' is no quantity; wanted ", wanted);
  found.unit = text.substr(static_cast<size_t>(end - text.data()));
  return found;
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

// 1 if the letter is none of k, m, g, t.
double prefix(char letter, double base) {
  const std::string letters = "kmgt";
  const size_t power = letters.find(letter);
  return power == std::string::npos ? 1 : std::pow(base, static_cast<double>(power + 1));
}

}  // namespace

double parse_bandwidth(const std::string& text) {
  constexpr const char* kWanted = "a bandwidth like 1Gbit, 100Mbit, 400MB/s or 25GB/s";
  const auto [number, unit] = number_and_unit(text, kWanted);
  std::string bits = lower(unit);
  if (bits.ends_with("/s")) bits.resize(bits.size() - 2);
  const bool is_bits = bits.ends_with("bit");
  const std::string before = is_bits                 ? bits.substr(0, bits.size() - 3)
                             : unit.ends_with("B/s") ? lower(unit.substr(0, unit.size() - 3))
                                                     : "?";
  const bool known = before.empty() || (before.size() == 1 && prefix(before[0], 1000) > 1);
  if (!known || number == 0) fail("'", text, "' is no bandwidth; wanted ", kWanted);
  return number * (before.empty() ? 1 : prefix(before[0], 1000)) / (is_bits ? 8 : 1);
}

double parse_seconds(const std::string& text) {
  constexpr const char* kWanted = "a time like 50us, 1.5ms or 0.2s";
  const auto [number, unit] = number_and_unit(text, kWanted);
  for (const auto& [name, seconds] : {std::pair{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1.0}})
    if (unit == name) return number * seconds;
  if (number == 0 && unit.empty()) return 0;
  fail("'", text, "' is no time; wanted ", kWanted);
}

int64_t parse_bytes(const std::string& text) {
  constexpr const char* kWanted = "bytes like 4096, 4K, 64M or 1G";
  const auto [number, unit] = number_and_unit(text, kWanted);
  std::string name = lower(unit);
  for (const char* tail : {"ib", "b"})
    if (name.ends_with(tail)) {
      name.resize(name.size() - std::string(tail).size());
      break;
    }
  const bool known = name.empty() || (name.size() == 1 && prefix(name[0], 1024) > 1);
  const double bytes = number * (name.empty() ? 1 : prefix(name[0], 1024));
  if (!known || bytes < 1 || bytes > 1e15 || bytes != std::floor(bytes))
    fail("'", text, "' is no number of bytes; wanted ", kWanted);
  return static_cast<int64_t>(bytes);
}

std::string bytes_text(int64_t bytes) {
  for (const auto& [shift, letter] : {std::pair{40, "T"}, {30, "G"}, {20, "M"}, {10, "K"}})
    if (bytes > 0 && bytes % (int64_t{1} << shift) == 0) return std::to_string(bytes >> shift) + letter;
  return std::to_string(bytes);
}

}  // namespace owt

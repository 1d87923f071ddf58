#include "src/server/push_message.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "src/core/bf16.h"
#include "src/system/check.h"

namespace owt {
namespace {

using Value = FilterSettings::Value;

constexpr float kLeastNormalOfFp16 = 0x1p-14f;
// Difference of the exponent biases of fp32 and fp16; the mantissa of fp16 has 13 bits less.
constexpr uint32_t kExponentsApart = 127 - 15;

uint16_t fp16_bits(float x) {  // x must be an fp16 value
  const auto bits = std::bit_cast<uint32_t>(x);
  const uint32_t sign = bits >> 16 & 0x8000;
  if (std::isnan(x)) return static_cast<uint16_t>(sign | 0x7e00);
  if (std::isinf(x)) return static_cast<uint16_t>(sign | 0x7c00);
  if (std::fabs(x) < kLeastNormalOfFp16)
    return static_cast<uint16_t>(sign | static_cast<uint32_t>(std::fabs(x) * 0x1p24f));
  return static_cast<uint16_t>(sign | (((bits & 0x7fffffff) >> 13) - (kExponentsApart << 10)));
}

float from_fp16(uint16_t half) {
  const uint32_t sign = (half & 0x8000u) << 16, exponent = half >> 10 & 31, mantissa = half & 0x3ffu;
  if (exponent == 31) return std::copysign(mantissa == 0 ? INFINITY : NAN, std::bit_cast<float>(sign));
  if (exponent == 0) return std::copysign(static_cast<float>(mantissa) * 0x1p-24f, std::bit_cast<float>(sign));
  return std::bit_cast<float>(sign | ((exponent + kExponentsApart) << 23) | (mantissa << 13));
}

template <class T>
void write(T value, std::byte*& to) {
  std::memcpy(to, &value, sizeof(T));
  to += sizeof(T);
}

template <class T>
T read(const std::byte*& from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  from += sizeof(T);
  return value;
}

void write_value(float x, Value value, const Extremes& of, std::byte*& to) {
  switch (value) {
    case Value::kF32:
      return write(x, to);
    case Value::kBf16:
      return write(to_bf16(x), to);
    case Value::kFp16:
      return write(fp16_bits(x), to);
    case Value::kFix8:
    case Value::kCoin8:
      return write(static_cast<uint8_t>(level_at(x, of, value)), to);
    case Value::kFix16:
    case Value::kCoin16:
      return write(static_cast<uint16_t>(level_at(x, of, value)), to);
  }
}

float read_value(Value value, const Extremes& of, const std::byte*& from) {
  switch (value) {
    case Value::kF32:
      return read<float>(from);
    case Value::kBf16:
      return from_bf16(read<uint16_t>(from));
    case Value::kFp16:
      return from_fp16(read<uint16_t>(from));
    case Value::kFix8:
    case Value::kCoin8:
      return at_level(read<uint8_t>(from), of, value);
    case Value::kFix16:
    case Value::kCoin16:
      return at_level(read<uint16_t>(from), of, value);
  }
  fail("values have no such type");
}

int64_t bytes_of_bits(int64_t entries) { return (entries + 7) / 8; }

bool as_numbers(int64_t entries, int64_t count) { return 4 * count < bytes_of_bits(entries); }

// places: of the entries in the range, in increasing order.
void write_which(const std::vector<uint32_t>& places, int64_t entries, std::byte*& to) {
  const auto count = std::ssize(places);
  if (count == entries) return;
  if (as_numbers(entries, count)) {
    for (const uint32_t place : places) write(place, to);
    return;
  }
  for (const uint32_t place : places) to[place / 8] |= std::byte{1} << (place % 8);
  to += bytes_of_bits(entries);
}

Sent read_which(int64_t entries, int64_t count, const std::byte*& from) {
  Sent sent(static_cast<size_t>(entries), count == entries);
  if (count == entries) return sent;
  if (as_numbers(entries, count)) {
    for (int64_t i = 0; i < count; ++i) sent.at(read<uint32_t>(from)) = true;
    return sent;
  }
  for (size_t i = 0; i < sent.size(); ++i) sent[i] = (from[i / 8] >> (i % 8) & std::byte{1}) != std::byte{};
  from += bytes_of_bits(entries);
  return sent;
}

}  // namespace

// Calls visit(tensor, entry of the tensor, entry of the range) for all entries that are in both.
template <class Visit>
void PushMessage::visit(Slice range, const Visit& visit) const {
  for (size_t t = 0; t < tensors_.size(); ++t) {
    const Slice& tensor = tensors_[t];
    const int64_t end = std::min(tensor.end, range.end);
    for (int64_t i = std::max(tensor.begin, range.begin); i < end; ++i)
      visit(t, static_cast<size_t>(i - tensor.begin), static_cast<size_t>(i - range.begin));
  }
}

int64_t PushMessage::count(std::span<const Filtered> of, Slice range) const {
  if (!settings_.chooses()) return range.size();
  int64_t count = 0;
  visit(range, [&](size_t tensor, size_t entry, size_t) { count += of[tensor].sent[entry] ? 1 : 0; });
  return count;
}

int64_t PushMessage::bytes(Slice range, int64_t count) const {
  return settings_.message_bytes(range.size(), count, std::ssize(tensors_)) - (settings_.chooses() ? 8 : 0);
}

// A bit per entry costs an eighth of a byte, which may be more than one dropped value saves.
int64_t PushMessage::most_bytes(Slice range) const {
  return bytes(range, range.size()) + (settings_.chooses() ? bytes_of_bits(range.size()) : 0);
}

Tensor PushMessage::packed(const Tensor& values, std::span<const Filtered> of, Slice range) const {
  const int64_t sent = count(of, range);
  Tensor message({bytes(range, sent)}, DType::kU8);
  message.zero();
  auto* to = static_cast<std::byte*>(message.raw());
  if (settings_.fixes())
    for (const Filtered& each : of) write(each.extremes.least, to), write(each.extremes.most, to);
  if (settings_.chooses()) {
    std::vector<uint32_t> places;
    visit(range, [&](size_t tensor, size_t entry, size_t place) {
      if (of[tensor].sent[entry]) places.push_back(static_cast<uint32_t>(place));
    });
    write_which(places, range.size(), to);
  }
  const float* const first = values.data() + range.begin;
  visit(range, [&](size_t tensor, size_t entry, size_t place) {
    if (of[tensor].sent[entry]) write_value(first[place], settings_.value, of[tensor].extremes, to);
  });
  return message;
}

void PushMessage::unpack(const Tensor& message, int64_t count, Slice range, Tensor& values) const {
  OWT_CHECK_EQ(message.bytes(), bytes(range, count));
  OWT_CHECK_EQ(values.elements(), range.size());
  const auto* from = static_cast<const std::byte*>(message.raw());
  std::vector<Extremes> extremes(tensors_.size());
  if (settings_.fixes())
    for (Extremes& each : extremes) each.least = read<float>(from), each.most = read<float>(from);
  const Sent sent = read_which(range.size(), count, from);
  values.zero();
  visit(range, [&](size_t tensor, size_t, size_t place) {
    if (sent[place]) values.data()[place] = read_value(settings_.value, extremes[tensor], from);
  });
}

}  // namespace owt

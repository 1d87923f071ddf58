#include "src/system/sha256.h"

#include <bit>
#include <cmath>
#include <string>

namespace owt {
namespace {

// The first 32 bits of the fractional part of a root of a prime; both tables of the standard consist of these.
uint32_t fraction(long double root) { return static_cast<uint32_t>((root - std::floor(root)) * 4294967296.0L); }

struct Sha256Tables {
  std::array<uint32_t, 64> rounds{};
  std::array<uint32_t, 8> start{};
  Sha256Tables() {
    size_t count = 0;
    for (int number = 2; count < rounds.size(); ++number) {
      bool prime = true;
      for (int divisor = 2; divisor * divisor <= number; ++divisor) prime = prime && number % divisor != 0;
      if (!prime) continue;
      if (count < start.size()) start[count] = fraction(std::sqrt(static_cast<long double>(number)));
      rounds[count++] = fraction(std::cbrt(static_cast<long double>(number)));
    }
  }
};

void add_block(const Sha256Tables& tables, const char* block, std::array<uint32_t, 8>& hash) {
  std::array<uint32_t, 64> w{};
  for (size_t i = 0; i < 64; ++i) {
    if (i < 16) {
      for (size_t byte = 0; byte < 4; ++byte) w[i] = w[i] << 8 | static_cast<uint8_t>(block[4 * i + byte]);
      continue;
    }
    const uint32_t a = w[i - 15], b = w[i - 2];
    w[i] = w[i - 16] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ a >> 3) + w[i - 7] +
           (std::rotr(b, 17) ^ std::rotr(b, 19) ^ b >> 10);
  }
  auto [a, b, c, d, e, f, g, h] = hash;
  for (size_t i = 0; i < 64; ++i) {
    const uint32_t one =
        h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) + ((e & f) ^ (~e & g)) + tables.rounds[i] + w[i];
    const uint32_t two = (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + one, d = c, c = b, b = a, a = one + two;
  }
  const std::array<uint32_t, 8> more{a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < hash.size(); ++i) hash[i] += more[i];
}

}  // namespace

std::array<uint8_t, 32> sha256(std::string_view text) {
  static const Sha256Tables tables;
  std::string padded(text);
  padded += '\x80';
  padded.resize((padded.size() + 8 + 63) / 64 * 64 - 8);
  for (int shift = 56; shift >= 0; shift -= 8) padded += static_cast<char>(uint64_t{8} * text.size() >> shift);
  std::array<uint32_t, 8> hash = tables.start;
  for (size_t at = 0; at < padded.size(); at += 64) add_block(tables, padded.data() + at, hash);
  std::array<uint8_t, 32> bytes{};
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(hash[i / 4] >> (24 - 8 * (i % 4)));
  return bytes;
}

}  // namespace owt

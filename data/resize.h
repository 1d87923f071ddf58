// Resizes images with a triangle filter: bilinear interpolation when enlarging, and its antialiased form when shrinking
// (Pillow's BILINEAR). Weights have 8 bits, so pixels may differ by one. When shrinking by more than about 250, most
// weights would round to zero; then the average covers some pixels only.
#pragma once

#include <cstdint>
#include <vector>

namespace owt {

// Keeps its memory and filters between images; for one thread at a time.
class Resizer {
 public:
  // from: height x width x channels bytes; to: side x side x channels bytes.
  void run(const uint8_t* from, int64_t height, int64_t width, int64_t channels, int64_t side, uint8_t* to);

 private:
  // For each output place: the first input place, and the weights in 256ths.
  struct Filter {
    int64_t in = 0, out = 0;
    int64_t taps = 0;
    std::vector<int64_t> first{};
    std::vector<uint16_t> weights{};  // out x taps
    void make(int64_t in_extent, int64_t out_extent);
  };

  void resize_rows(const uint8_t* from, int64_t height, int64_t width, int64_t channels);
  void resize_columns(int64_t side, int64_t channels, uint8_t* to) const;

  Filter across_, down_;
  std::vector<uint8_t> narrow_;  // height x side x channels; a row takes narrow_row_ bytes
  int64_t narrow_row_ = 0;
  std::vector<uint8_t> turned_, resized_, last_;  // a few rows side by side: [place][row]
};

}  // namespace owt

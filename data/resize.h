// Images of other sizes: a triangle filter, that is bilinear interpolation when enlarging, and its antialiased kind
// when shrinking (what Pillow calls BILINEAR). Weights have 8 bits, so that pixels may be off by one; when shrinking by
// more than about 250, where most weights would round to nothing, an average is of some pixels only.
#pragma once

#include <cstdint>
#include <vector>

namespace owt {

// Keeps its memory and filters from image to image; for one thread at a time.
class Resizer {
 public:
  // from: height x width x 3 bytes; to: side x side x 3 bytes.
  void run(const uint8_t* from, int64_t height, int64_t width, int64_t side, uint8_t* to);

 private:
  // For each place of the output: from which place of the input on, and how much of each in 256ths.
  struct Filter {
    int64_t in = 0, out = 0;
    int64_t taps = 0;
    std::vector<int64_t> first{};
    std::vector<uint16_t> weights{};  // out x taps
    void make(int64_t in_extent, int64_t out_extent);
  };

  void resize_rows(const uint8_t* from, int64_t height, int64_t width);
  void resize_columns(int64_t side, uint8_t* to) const;

  Filter across_, down_;
  std::vector<uint8_t> narrow_;  // height x side x 3, a row taking narrow_row_ bytes
  int64_t narrow_row_ = 0;
  std::vector<uint8_t> turned_, resized_, last_;  // some rows side by side: [place][row]
};

}  // namespace owt

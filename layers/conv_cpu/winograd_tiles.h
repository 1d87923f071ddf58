// Code shared by the Winograd passes: tiling of images, and reading and storing of tiles.
#pragma once

#include <algorithm>
#include <vector>

#include "layers/conv_cpu/conv_pass.h"
#include "layers/conv_cpu/micro_gemm.h"
#include "layers/conv_cpu/winograd_transforms.h"

namespace owt {

// Channels are stored in whole vectors, padded with zeros.
inline int64_t lanes_for(int64_t channels) { return round_up(channels, kLanes); }

// The widest panel of vectors that divides this many channels and fits into the registers with six rows of sums.
inline int panel_vectors(int64_t lanes) {
  int vectors = kMostVectors;
  while (lanes / kLanes % vectors != 0) --vectors;
  return vectors;
}

template <class Element>
struct Images {
  Element* pixels;
  int64_t rows, height, width, channels;

  Element* pixel(int64_t image, int64_t y, int64_t x) const {
    return pixels + ((image * height + y) * width + x) * channels;
  }
};

// Tiles of kOutputs x kOutputs outputs, numbered by rows, cover the output of every image.
struct Tiling {
  int64_t rows, height, width;  // size of the output
  int outputs;                  // outputs of a tile, in one dimension
  int64_t down = quotient_up(height, outputs), across = quotient_up(width, outputs);

  int64_t tiles() const { return rows * down * across; }

  struct TileOrigin {
    int64_t image, y, x;
  };
  TileOrigin origin(int64_t tile) const {
    const int64_t in_image = tile % (down * across);
    return {tile / (down * across), in_image / across * outputs, in_image % across * outputs};
  }
};

// A square of kSide x kSide pixels of an image, starting at (y, x); pixels outside the image are zeros.
template <int kSide, class Element>
class InputTile {
 public:
  // exists: whether the image exists. zeros: a pixel of zeros.
  InputTile(const Images<const Element>& images, bool exists, const Tiling::TileOrigin& at, const Element* zeros) {
    for (int i = 0; i < kSide; ++i)
      for (int j = 0; j < kSide; ++j) {
        const int64_t y = at.y + i, x = at.x + j;
        const bool inside = exists && y >= 0 && y < images.height && x >= 0 && x < images.width;
        pixels_[i * kSide + j] = inside ? images.pixel(at.image, y, x) : zeros;
      }
  }

  // Loads the lanes starting at `channel`, of which `left` exist.
  void load(int64_t channel, int64_t left, Vector (&values)[kSide * kSide]) const {
    if (left >= kLanes) {
#pragma GCC unroll 64
      for (int i = 0; i < kSide * kSide; ++i) values[i] = owt::load(pixels_[i] + channel);
    } else {
      for (int i = 0; i < kSide * kSide; ++i) values[i] = owt::load(pixels_[i] + channel, left);
    }
  }

 private:
  const Element* pixels_[kSide * kSide];
};

// Stores plane p of the vectors that form a unit, lane by lane.
template <int kParts, int kPlanes>
inline void store_unit(const Vector (&parts)[kParts][kPlanes], int p, char* to) {
  if constexpr (kParts == 1) {
    store(parts[0][p], reinterpret_cast<float*>(to));
  } else {
    const VectorU32 pairs = bf16_pairs(parts[0][p], parts[1][p]);
    std::memcpy(to, &pairs, sizeof pairs);
  }
}

}  // namespace owt

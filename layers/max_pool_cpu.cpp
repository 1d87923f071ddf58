#include <cstring>
#include <limits>
#include <vector>

#include "layers/pool.h"
#include "layers/pool_geometry.h"
#include "src/core/simd.h"

namespace owt {
namespace {

// Loads places in windows, starting at the first of `lanes` channels.
template <class Count>
VectorU32 load_places(const uint8_t* from, Count lanes) {
  return widened(load_first<VectorU8>(from, lanes));
}
template <class Count>
VectorU32 load_places(const uint32_t* from, Count lanes) {
  return load_first<VectorU32>(from, lanes);
}
template <class Count>
void store_places(VectorU32 places, uint8_t* to, Count lanes) {
  store_first(narrowed(places), to, lanes);
}
template <class Count>
void store_places(VectorU32 places, uint32_t* to, Count lanes) {
  store_first(places, to, lanes);
}

constexpr int kHalves = 2 * kLanes;
typedef int16_t Halves __attribute__((vector_size(2 * kHalves)));
typedef uint8_t HalvesAsBytes __attribute__((vector_size(kHalves)));

// Whether any lane is true.
bool any(Halves comparison) {
  uint64_t bits[sizeof comparison / sizeof(uint64_t)], all = 0;
  std::memcpy(bits, &comparison, sizeof comparison);
  for (const uint64_t some : bits) all |= some;
  return all != 0;
}

// Index: type of the place of a maximum in its window, in row order.
template <class Index>
class MaxPoolOp : public Op {
 public:
  MaxPoolOp(const Window& window, const Shape& in)
      : p_(window, in), places_(static_cast<size_t>(p_.rows * p_.out_height * p_.out_width * p_.channels)) {}

  void forward(const Pass& pass, const Tensor& x, Tensor& y) override {
    with_cpu_element(x.dtype(), [&](auto element) {
      using T = decltype(element);
      if (pass.mode == Mode::kTrain)
        run<true>(x.data<T>(), y.data<T>());
      else
        run<false>(x.data<T>(), y.data<T>());
    });
  }

  void backward_data(const Pass&, const Tensor&, const Tensor&, const Tensor& dy, Tensor* dx) override {
    if (!dx) return;
    with_cpu_element(dy.dtype(), [&](auto element) {
      using T = decltype(element);
      give_back(dy.data<T>(), dx->data<T>());
    });
  }

 private:
  template <bool kKeepPlaces, class T>
  void run(const T* x, T* y) {
    for_each_window(p_, [&](int64_t row, int64_t oh, int64_t ow) {
      const PoolGeometry::PoolRange down = p_.pixels(oh, p_.height), across = p_.pixels(ow, p_.width);
      const T* corner = x + p_.pixel(row, down.begin, across.begin);
      const uint32_t place = p_.place(oh, ow, down.begin, across.begin);
      const int64_t out = p_.output(row, oh, ow);
      with_extents(down.end - down.begin, across.end - across.begin, [&](auto height, auto width) {
        const int64_t done = run_wide<kKeepPlaces>(corner, height, width, place, y + out, places_.data() + out);
        if (done == p_.channels) return;
        for_each_vector(p_.channels - done, [&](int64_t i, auto lanes) {
          const int64_t c = done + i;
          const auto [largest, from] = maximum<kKeepPlaces>(corner + c, height, width, place, lanes);
          store(largest, y + out + c, lanes);
          if (kKeepPlaces) store_places(from, places_.data() + out + c, lanes);
        });
      });
    });
  }

  // The maxima of the first channels of a bf16 window, with twice as many channels in a vector as f32 has. Returns the
  // number of channels done, or 0 if there is a NaN. bf16 values compare like integers except for the sign; -0 becomes
  // 0.
  template <bool kKeepPlaces, class T, class Height, class Width>
  int64_t run_wide(const T* x, Height height, Width width, uint32_t first, T* y, Index* places) const {
    if constexpr (std::is_same_v<T, Bf16> && sizeof(Index) == 1) {
      if (p_.channels < kHalves) return 0;
      Halves magnitudes{};  // the largest of all
      int64_t c = 0;
      for (; c + kHalves <= p_.channels; c += kHalves) {
        Halves largest = Halves{} - int16_t{0x7f80}, from = Halves{} + static_cast<int16_t>(first);  // minus infinity
        for (int64_t h = 0; h < height; ++h)
          for (int64_t w = 0; w < width; ++w) {
            const auto place = static_cast<int16_t>(static_cast<int64_t>(first) + h * p_.window.kernel + w);
            Halves bits;
            std::memcpy(&bits, x + (h * p_.width + w) * p_.channels + c, sizeof bits);
            const Halves magnitude = bits & int16_t{0x7fff}, here = bits < 0 ? -magnitude : magnitude;
            magnitudes = magnitudes > magnitude ? magnitudes : magnitude;
            if (kKeepPlaces) from = here > largest ? Halves{} + place : from;
            largest = here > largest ? here : largest;
          }
        const Halves value = largest < 0 ? -largest | int16_t{-0x8000} : largest;
        std::memcpy(y + c, &value, sizeof value);
        const auto bytes = __builtin_convertvector(from, HalvesAsBytes);
        if (kKeepPlaces) std::memcpy(places + c, &bytes, sizeof bytes);
      }
      return any(magnitudes > int16_t{0x7f80}) ? 0 : c;
    }
    return 0;
  }

  struct Maximum {
    Vector value;
    VectorU32 place;
  };

  // The maximum of height x width pixels starting at x, and its place. The first pixel has place `first`. If all pixels
  // are minus infinity, the first one is the maximum. The last NaN wins; it is tracked separately, so that the steps of
  // the loop do not depend on it.
  template <bool kKeepPlaces, class T, class Height, class Width, class Count>
  Maximum maximum(const T* x, Height height, Width width, uint32_t first, Count lanes) const {
    constexpr uint32_t kNone = ~0u;
    Vector largest = all_lanes(-std::numeric_limits<float>::infinity());
    VectorU32 place = VectorU32{} + first, of_largest = place, of_nan = VectorU32{} + kNone;
    for (int64_t h = 0; h < height; ++h) {
      const T* pixel = x + h * p_.width * p_.channels;
      place = VectorU32{} + (first + static_cast<uint32_t>(h * p_.window.kernel));
      for (int64_t w = 0; w < width; ++w, pixel += p_.channels, place += 1) {
        const Vector here = load(pixel, lanes);
        if (kKeepPlaces) of_largest = here > largest ? place : of_largest;
        largest = larger(here, largest);
        of_nan = here != here ? place : of_nan;
      }
    }
    const Vector nan = all_lanes(std::numeric_limits<float>::quiet_NaN());
    return {of_nan == kNone ? largest : nan, of_nan == kNone ? of_largest : of_nan};
  }

  template <class T>
  void give_back(const T* dy, T* dx) const {
    for_each_pixel(p_, [&](int64_t row, int64_t ih, int64_t iw) {
      const PoolGeometry::PoolRange down = p_.over_height[static_cast<size_t>(ih)],
                                    across = p_.over_width[static_cast<size_t>(iw)];
      const int64_t in = p_.pixel(row, ih, iw), out = p_.output(row, down.begin, across.begin);
      const uint32_t place = p_.place(down.begin, across.begin, ih, iw);
      with_extents(down.end - down.begin, across.end - across.begin, [&](auto height, auto width) {
        for_each_vector(p_.channels, [&](int64_t c, auto lanes) {
          store(gathered(dy, out + c, height, width, place, lanes), dx + in + c, lanes);
        });
      });
    });
  }

  // The sum of dy over the windows, among height x width of them, whose maximum came from a given pixel. `out`: the
  // outputs of the first window. `first`: the place of the pixel in the first window.
  template <class T, class Height, class Width, class Count>
  Vector gathered(const T* dy, int64_t out, Height height, Width width, uint32_t first, Count lanes) const {
    const auto stride = static_cast<uint32_t>(p_.window.stride), kernel = static_cast<uint32_t>(p_.window.kernel);
    Vector sum{};
    for (uint32_t h = 0; h < height; ++h)
      for (uint32_t w = 0; w < width; ++w) {
        const int64_t here = out + (h * p_.out_width + w) * p_.channels;
        const VectorU32 places = load_places(places_.data() + here, lanes);
        sum += places == first - stride * (kernel * h + w) ? load(dy + here, lanes) : Vector{};
      }
    return sum;
  }

  PoolGeometry p_;
  std::vector<Index> places_;
};

}  // namespace

std::unique_ptr<Op> bind_max_pool(Cpu, const Window& window, const Shape& in) {
  // One byte per output needs a quarter of the memory traffic; windows beyond 16 x 16 need more.
  if (window.kernel * window.kernel <= 256) return std::make_unique<MaxPoolOp<uint8_t>>(window, in);
  return std::make_unique<MaxPoolOp<uint32_t>>(window, in);
}

}  // namespace owt

#include "layers/conv_windows.h"

#include <algorithm>

#include "src/system/check.h"

namespace owt {
namespace {

constexpr int64_t kMostPixels = 1 << 15;  // limit on kernel, stride and pad; no sum of these overflows

// Reads a key that holds one number for both directions, or [h, w].
Pair read_pair(Config& config, const std::string& key, int64_t low) {
  if (!config.is_array(key)) {
    const int64_t both = config.integer(key, {.low = static_cast<double>(low), .high = kMostPixels});
    return {both, both};
  }
  const std::vector<int64_t> values = config.integers(key);
  if (values.size() != 2)
    config.error(key, concat("'", key, "' has ", values.size(), " numbers, wanted one number or [height, width]"));
  for (const int64_t value : values)
    if (value < low || value > kMostPixels)
      config.error(key, concat("'", key, "' is ", value, ", wanted ", low, " to ", kMostPixels));
  return {values[0], values[1]};
}

Pair read_pair(Config& config, const std::string& key, int64_t low, int64_t otherwise) {
  return config.given(key) ? read_pair(config, key, low) : Pair{otherwise, otherwise};
}

}  // namespace

ConvWindows::ConvWindows(const LayerSpec& spec, Dilation dilation) {
  Config& config = spec.config;
  kernel_ = read_pair(config, "kernel", 1);
  stride_ = read_pair(config, "stride", 1, 1);
  pad_ = read_pair(config, "pad", 0, 0);
  if (dilation == Dilation::kKey) dilation_ = read_pair(config, "dilation", 1, 1);
  round_ = config.word("round", "down", {"down", "up"}) == "up" ? Round::kUp : Round::kDown;
  if (spec.in.rank() != 3) fail("it convolves images; put it before the first dense layer");
  channels_ = spec.in[2];
  check_kernel(config, spec.in);
}

void ConvWindows::check_kernel(const Config& config, const Shape& in) const {
  const auto [height, width] = reach();
  const bool dilated = height > kernel_.h || width > kernel_.w;
  if (in[0] + 2 * pad_.h < height || in[1] + 2 * pad_.w < width)
    config.error("kernel",
                 concat("the kernel of ", kernel_.h, "x", kernel_.w,
                        dilated ? concat(", which covers ", height, "x", width, " pixels with its dilation,") : "",
                        " is larger than the image of ", in[0], "x", in[1], " with padding ", pad_.h, ", ", pad_.w,
                        "; use a smaller kernel, more padding, or fewer layers that shrink the image"));
}

Pair ConvWindows::reach() const { return {(kernel_.h - 1) * dilation_.h + 1, (kernel_.w - 1) * dilation_.w + 1}; }

ConvWindows::WindowCount ConvWindows::windows(int64_t in, int64_t reach, int64_t stride, int64_t pad) const {
  const int64_t steps = in + 2 * pad - reach;
  const int64_t out = (round_ == Round::kUp ? steps + stride - 1 : steps) / stride + 1;
  return {out, std::max(pad, (out - 1) * stride + reach - in - pad)};
}

ConvGeometry ConvWindows::geometry(const Layer& layer, const Shape& in, int64_t out_c, int64_t groups) const {
  if (in.rank() != 4 || in[3] != channels_)
    fail("layer '", layer.name(), "' convolves images of ", channels_, " channels, not an input of ", in);
  const auto [height, width] = reach();
  if (in[1] + 2 * pad_.h < height || in[2] + 2 * pad_.w < width)
    fail("layer '", layer.name(), "': the kernel of ", kernel_.h, "x", kernel_.w,
         " is larger than the padded input of ", in);
  const WindowCount h = windows(in[1], height, stride_.h, pad_.h);
  const WindowCount w = windows(in[2], width, stride_.w, pad_.w);
  return {.in_h = in[1],
          .in_w = in[2],
          .in_c = channels_,
          .out_h = h.out,
          .out_w = w.out,
          .out_c = out_c,
          .kernel_h = kernel_.h,
          .kernel_w = kernel_.w,
          .stride_h = stride_.h,
          .stride_w = stride_.w,
          .top = pad_.h,
          .left = pad_.w,
          .bottom = h.after,
          .right = w.after,
          .groups = groups,
          .dilation_h = dilation_.h,
          .dilation_w = dilation_.w};
}

}  // namespace owt

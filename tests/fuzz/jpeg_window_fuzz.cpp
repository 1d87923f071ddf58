// Reads any bytes as a JPEG file and decodes two windows, in colour and in grey: the whole image, and a part that
// depends on its size.
#include <vector>

#include "data/jpeg/jpeg_window.h"
#include "tests/fuzz/input.h"

namespace {

constexpr int64_t kMostPixels = 1 << 18;  // larger images are slow and no different

using Pixels = std::vector<uint8_t>;

Pixels decode(owt::WindowDecoder& decoder, const owt::ImageWindow& window, int channels) {
  Pixels pixels(static_cast<size_t>(window.height * window.width * channels));
  decoder.decode(window, channels, pixels.data());
  return pixels;
}

Pixels cut(const Pixels& image, int64_t width, const owt::ImageWindow& window, int channels) {
  Pixels part;
  for (int64_t row = window.top; row < window.top + window.height; ++row) {
    const auto from = image.begin() + (row * width + window.left) * channels;
    part.insert(part.end(), from, from + window.width * channels);
  }
  return part;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t count) {
  owt::WindowDecoder decoder;
  owt::try_reading([&] {
    decoder.open(owt::text_of(bytes, count));
    const int64_t height = decoder.height(), width = decoder.width();
    owt::promise(height > 0 && width > 0, "an image has pixels");
    if (height * width > kMostPixels) return;
    const int64_t top = static_cast<int64_t>(count) % height, left = static_cast<int64_t>(count / 3) % width;
    const owt::ImageWindow part{top, left, (height - top + 1) / 2, (width - left + 1) / 2};
    for (const int channels : {3, 1}) {
      const Pixels image = decode(decoder, {0, 0, height, width}, channels);
      owt::promise(decode(decoder, part, channels) == cut(image, width, part, channels),
                   "a window shows what the whole image shows there");
    }
  });
  owt::try_reading([&] {  // a separate window, before anything else was decoded
    owt::WindowDecoder fresh;
    fresh.open(owt::text_of(bytes, count));
    const int64_t height = fresh.height(), width = fresh.width();
    if (height * width > kMostPixels) return;
    decode(fresh, {height / 2, width / 2, 1, 1}, 3);
  });
  return 0;
}

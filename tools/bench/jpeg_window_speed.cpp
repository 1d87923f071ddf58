// The speed of one core that decodes the windows of training and evaluation from JPEG files, compared with
// libjpeg-turbo's partial decoding (jpeg_crop_scanline, jpeg_skip_scanlines). Fails if their pixels differ.
//
//   usage: jpeg_window_speed FILE...
//
// Prints medians of 21 rounds in which the decoders alternate, in images per second of processor time.
#include <algorithm>
#include <ctime>
#include <iostream>
#include <string>
#include <vector>

#include "data/jpeg/libjpeg.h"
#include "data/shards.h"
#include "src/system/files.h"
#include "src/system/log.h"

namespace owt {
namespace {

constexpr int kRounds = 21;

class PartialDecoder {
 public:
  void open(std::string_view file) {
    jpeg_abort_decompress(&info_);
    jpeg_.read_header(file);
  }

  void decode(const ImageWindow& window, uint8_t* rgb) {
    line_.resize(static_cast<size_t>(info_.image_width * 3));
    jpeg_.must([&] { read_rows(window, rgb); });
  }

 private:
  void read_rows(const ImageWindow& window, uint8_t* rgb) {
    info_.out_color_space = JCS_RGB;
    info_.dct_method = JDCT_ISLOW;
    info_.do_fancy_upsampling = FALSE;
    info_.do_block_smoothing = FALSE;
    jpeg_start_decompress(&info_);
    auto left = static_cast<JDIMENSION>(window.left), width = static_cast<JDIMENSION>(window.width);
    if (width < info_.output_width) jpeg_crop_scanline(&info_, &left, &width);
    if (window.top > 0) jpeg_skip_scanlines(&info_, static_cast<JDIMENSION>(window.top));
    for (int64_t y = 0; y < window.height; ++y) {
      JSAMPROW line = line_.data();
      jpeg_read_scanlines(&info_, &line, 1);
      std::copy_n(line_.data() + (window.left - left) * 3, window.width * 3, rgb + y * window.width * 3);
    }
  }

  JpegDecompressor jpeg_{JpegErrors::give_up};
  jpeg_decompress_struct& info_ = jpeg_.info;
  std::vector<uint8_t> line_;
};

double processor_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Decodes one window of each file. Returns images per second.
template <class Decoder>
double speed(Decoder& decoder, const std::vector<std::string>& files, const std::vector<ImageWindow>& windows,
             std::vector<std::vector<uint8_t>>& pixels) {
  const double begin = processor_seconds();
  for (size_t i = 0; i < files.size(); ++i) {
    decoder.open(files[i]);
    decoder.decode(windows[i], 3, pixels[i].data());
  }
  return static_cast<double>(files.size()) / (processor_seconds() - begin);
}

void compare(const char* what, const std::vector<std::string>& files, const CropSettings& crop, bool training) {
  WindowDecoder own;
  PartialDecoder turbo;
  std::vector<double> own_speeds, turbo_speeds, ratios;
  for (int round = -1; round < kRounds; ++round) {  // the first one is not counted
    std::vector<ImageWindow> windows;
    std::vector<std::vector<uint8_t>> own_pixels;
    for (const std::string& file : files) {
      own.open(file);
      const View view{.training = training, .epoch = round + 1};
      windows.push_back(window_of(crop, view, std::ssize(windows), own.height(), own.width()));
      own_pixels.emplace_back(static_cast<size_t>(windows.back().height * windows.back().width * 3));
    }
    auto turbo_pixels = own_pixels;
    const double own_speed = speed(own, files, windows, own_pixels);
    const double turbo_speed = speed(turbo, files, windows, turbo_pixels);
    if (own_pixels != turbo_pixels) fail(what, ": the decoders give different pixels");
    if (round < 0) continue;
    own_speeds.push_back(own_speed);
    turbo_speeds.push_back(turbo_speed);
    ratios.push_back(own_speed / turbo_speed);
  }
  std::cout << what
            << format(": {:.0f} images/s, libjpeg-turbo {:.0f}, ratio {:.2f}\n", median(own_speeds),
                      median(turbo_speeds), median(ratios));
}

}  // namespace
}  // namespace owt

int main(int count, char** words) {
  using namespace owt;
  try {
    std::vector<std::string> files;
    for (int i = 1; i < count; ++i) files.push_back(read_file(words[i]));
    if (files.empty()) fail("usage: jpeg_window_speed FILE...");
    compare("random-resized crops", files, {.area = {0.08, 1.0}}, true);
    compare("random crops", files, {}, true);
    compare("centre crops", files, {}, false);
  } catch (const std::exception& error) {
    std::cerr << "jpeg_window_speed: error: " << error.what() << '\n';
    return 1;
  }
}

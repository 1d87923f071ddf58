#include "data/photos/photo.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <new>
#include <opencv2/core.hpp>
#include <opencv2/core/utils/logger.hpp>
#include <opencv2/imgproc.hpp>
#include <utility>

#include "data/photos/photo_formats.h"

namespace owt {
namespace {

constexpr int64_t kLongestSide = int64_t{1} << 20;  // OpenCV's limit
constexpr int64_t kLongestJpegSide = 65500;         // libjpeg's limit
constexpr int64_t kHugePixels = int64_t{1} << 25;

// OpenCV's log lines would repeat BadPhoto's reason. The calling threads are the only threads.
void set_up_opencv() {
  [[maybe_unused]] static const bool once = [] {
    cv::utils::logging::setLogLevel(cv::utils::logging::LOG_LEVEL_SILENT);
    cv::setNumThreads(0);
    return true;
  }();
}

// A view of a photo's pixels for OpenCV, not a copy.
cv::Mat matrix_of(const Photo& photo) {
  return {static_cast<int>(photo.height), static_cast<int>(photo.width), CV_8UC3,
          const_cast<uint8_t*>(photo.pixels.data())};
}

using Reader = Photo (*)(std::string_view file, const PhotoLimits& limits);

// Chooses the reader by the first bytes. Throws BadPhoto for an empty file, for unsupported formats and for files that
// are no image.
Reader reader_of(std::string_view file) {
  using namespace std::string_view_literals;
  if (file.empty()) throw BadPhoto("empty file");
  if (file.starts_with("\xff\xd8\xff")) return read_jpeg;
  if (file.starts_with("\x89PNG\r\n\x1a\n")) return read_png;
  if (file.starts_with("BM")) return read_bmp;
  if (file.starts_with("RIFF") && file.size() >= 12 && file.substr(8, 4) == "WEBP") return read_webp;
  for (const std::string_view magic : {"II\x2a\0"sv, "MM\0\x2a"sv, "II\x2b\0"sv, "MM\0\x2b"sv})
    if (file.starts_with(magic)) return read_tiff;
  if (file.starts_with("GIF8")) throw BadPhoto("a GIF file, which is not supported; convert it to PNG");
  if (file.size() >= 12 && file.substr(4, 4) == "ftyp")
    throw BadPhoto("an HEIC, AVIF or video file, which is not supported; convert it to JPEG");
  throw BadPhoto("no image: neither JPEG, PNG, BMP, WebP nor TIFF");
}

}  // namespace

void check_memory(uint64_t bytes) {
  void* volatile memory = std::malloc(bytes);  // volatile: otherwise the compiler removes it
  std::free(memory);
  if (!memory) throw std::bad_alloc();
}

Photo white(int64_t height, int64_t width) { return {height, width, std::vector<uint8_t>(height * width * 3, 255)}; }

void put_over_white(const uint8_t* rgba, int64_t count, bool multiplied, uint8_t* rgb) {
  for (int64_t i = 0; i < count; ++i, rgba += 4, rgb += 3) {
    const int alpha = rgba[3];
    for (int c = 0; c < 3; ++c) {
      const int colour = rgba[c] * (multiplied ? 255 : alpha);
      rgb[c] = static_cast<uint8_t>(std::min((colour + (255 - alpha) * 255 + 127) / 255, 255));
    }
  }
}

std::unique_lock<std::mutex> admit(int64_t height, int64_t width, const PhotoLimits& limits) {
  if (height < 1 || width < 1) throw BadPhoto("an image without pixels");
  if (width > limits.pixels / height || std::max(height, width) > kLongestSide)
    throw BadPhoto(concat(width, " x ", height, " pixels, more than ",
                          width > limits.pixels / height ? limits.pixels : kLongestSide,
                          width > limits.pixels / height ? "" : " on a side"));
  static std::mutex huge;
  return height * width > kHugePixels ? std::unique_lock(huge) : std::unique_lock<std::mutex>();
}

Photo upright(Photo photo, int64_t orientation) {
  if (orientation == 1) return photo;
  set_up_opencv();
  // 1 unchanged, 2 mirrored, 3 rotated by 180 degrees, 4 flipped vertically; 5 to 8 likewise, after transposing.
  const bool transposed = orientation >= 5;
  Photo turned = white(transposed ? photo.width : photo.height, transposed ? photo.height : photo.width);
  cv::Mat from = matrix_of(photo), to = matrix_of(turned);
  if (transposed)
    cv::transpose(from, to);
  else
    from.copyTo(to);
  constexpr int kRows = 0, kColumns = 1, kBoth = -1;
  if (orientation == 2 || orientation == 6) cv::flip(to, to, kColumns);
  if (orientation == 3 || orientation == 7) cv::flip(to, to, kBoth);
  if (orientation == 4 || orientation == 8) cv::flip(to, to, kRows);
  return turned;
}

bool named_like_photo(const std::string& name) {
  std::string ending = std::filesystem::path(name).extension().string();
  std::transform(ending.begin(), ending.end(), ending.begin(), [](unsigned char c) { return std::tolower(c); });
  constexpr const char* kEndings[] = {".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff"};
  return std::find(std::begin(kEndings), std::end(kEndings), ending) != std::end(kEndings);
}

Photo read_photo(std::string_view file, const PhotoLimits& limits) {
  set_up_opencv();
  return reader_of(file)(file, limits);
}

Photo resized(Photo photo, int64_t short_side) {
  const int64_t side = std::min(photo.height, photo.width);
  if (side == short_side) return photo;
  set_up_opencv();
  const auto scaled = [&](int64_t length) { return (2 * length * short_side + side) / (2 * side); };
  const int64_t height = scaled(photo.height), width = scaled(photo.width);
  if (std::max(height, width) > kLongestJpegSide)
    throw BadPhoto(concat(photo.width, " x ", photo.height, " pixels, too thin: its long side would be more than ",
                          kLongestJpegSide));
  if (width > PhotoLimits{}.pixels / height)
    throw BadPhoto(concat(photo.width, " x ", photo.height, " pixels, too thin to enlarge"));
  Photo result = white(height, width);
  cv::Mat to = matrix_of(result);
  cv::resize(matrix_of(photo), to, to.size(), 0, 0, short_side < side ? cv::INTER_AREA : cv::INTER_LINEAR);
  return result;
}

}  // namespace owt

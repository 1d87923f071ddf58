#include "data/photo.h"

#include <algorithm>
#include <new>
#include <opencv2/core.hpp>
#include <opencv2/core/utils/logger.hpp>
#include <opencv2/imgcodecs.hpp>
#include <opencv2/imgproc.hpp>
#include <utility>

#include "data/photo_jpeg.h"
#include "data/still.h"
#include "src/core/files.h"

namespace owt {
namespace {

constexpr int64_t kLongestSide = int64_t{1} << 20;  // OpenCV's limit
constexpr int64_t kLongestJpegSide = 65500;         // libjpeg's limit
constexpr int64_t kHugePixels = int64_t{1} << 25;

// Its log lines would repeat what BadPhoto says, and the threads are those that call it.
void set_up_opencv() {
  [[maybe_unused]] static const bool once = [] {
    cv::utils::logging::setLogLevel(cv::utils::logging::LOG_LEVEL_SILENT);
    cv::setNumThreads(0);
    return true;
  }();
}

// The pixels of a photo as OpenCV sees them; not a copy.
cv::Mat matrix_of(const Photo& photo) {
  return {static_cast<int>(photo.height), static_cast<int>(photo.width), CV_8UC3,
          const_cast<uint8_t*>(photo.pixels.data())};
}

Photo white(int64_t height, int64_t width) {
  return {height, width, std::vector<uint8_t>(static_cast<size_t>(height * width * 3), 255)};
}

cv::Mat decode(PhotoFormat format, std::string_view file) {
  const cv::Mat bytes(1, static_cast<int>(file.size()), CV_8U, const_cast<char*>(file.data()));
  // The fourth byte of a pixel of BMP is mostly not meant as alpha, though OpenCV takes it for that.
  const int flags =
      format == PhotoFormat::kBmp ? cv::IMREAD_COLOR | cv::IMREAD_IGNORE_ORIENTATION : cv::IMREAD_UNCHANGED;
  try {
    return cv::imdecode(bytes, flags);
  } catch (const cv::Exception& e) {
    if (e.code == cv::Error::StsNoMem) throw std::bad_alloc();  // which is not the file's fault
    throw BadPhoto(concat("damaged ", format_name(format), ": ", e.err));
  }
}

// Gray, BGR or BGRA of 8 or 16 bits as RGB over white; `multiplied`: the colours are, by alpha, already.
void put_over_white(cv::Mat image, bool multiplied, cv::Mat rgb) {
  if (image.depth() == CV_16U) image.convertTo(image, CV_8U, 1.0 / 257);
  if (image.channels() == 1) return cv::cvtColor(image, rgb, cv::COLOR_GRAY2RGB);
  if (image.channels() == 3) return cv::cvtColor(image, rgb, cv::COLOR_BGR2RGB);
  for (int y = 0; y < image.rows; ++y)
    for (int x = 0; x < image.cols; ++x) {
      const auto from = image.at<cv::Vec4b>(y, x);
      const int alpha = from[3];
      for (int c = 0; c < 3; ++c) {
        const int colour = multiplied ? from[2 - c] * 255 : from[2 - c] * alpha;
        rgb.at<cv::Vec3b>(y, x)[c] = static_cast<uint8_t>(std::min((colour + (255 - alpha) * 255 + 127) / 255, 255));
      }
    }
}

Photo read_with_opencv(PhotoFormat format, std::string_view file, const PhotoLimits& limits) {
  const Still still = find_still(format, file);
  const auto turn = admit(still.height, still.width, limits);
  const cv::Mat image = decode(format, still.file.empty() ? file : std::string_view(still.file));
  if (image.empty()) throw BadPhoto(concat("damaged or truncated ", format_name(format)));
  if ((image.depth() != CV_8U && image.depth() != CV_16U) || image.channels() == 2 || image.channels() > 4)
    throw BadPhoto(concat(format_name(format), " of a kind that is not supported: neither 8 nor 16 bits, or ",
                          image.channels(), " channels"));
  if (format == PhotoFormat::kTiff) {  // which OpenCV turns upright; of 8 bits it has multiplied the colours by alpha
    Photo photo = white(image.rows, image.cols);
    put_over_white(image, image.depth() == CV_8U || still.multiplied, matrix_of(photo));
    return photo;
  }
  if (image.rows != still.frame_height || image.cols != still.frame_width)
    throw BadPhoto(concat("damaged ", format_name(format), ": two sizes"));
  Photo photo = white(still.height, still.width);
  const cv::Rect frame(static_cast<int>(still.left), static_cast<int>(still.top), image.cols, image.rows);
  put_over_white(image, false, matrix_of(photo)(frame));
  return upright(std::move(photo), still.orientation);
}

}  // namespace

std::unique_lock<std::mutex> admit(int64_t height, int64_t width, const PhotoLimits& limits) {
  if (width > limits.pixels / height || std::max(height, width) > kLongestSide)
    throw BadPhoto(concat(width, " x ", height, " pixels, more than ",
                          width > limits.pixels / height ? limits.pixels : kLongestSide,
                          width > limits.pixels / height ? "" : " on a side"));
  static std::mutex huge;
  return height * width > kHugePixels ? std::unique_lock(huge) : std::unique_lock<std::mutex>();
}

Photo upright(Photo photo, int orientation) {
  if (orientation == 1) return photo;
  set_up_opencv();
  // 1 as it is, 2 mirrored, 3 half a turn, 4 upside down mirrored; 5 to 8 likewise, after transposing.
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

Photo read_photo(std::string_view file, const PhotoLimits& limits) {
  set_up_opencv();
  const PhotoFormat format = photo_format(file);
  if (format == PhotoFormat::kJpeg) return read_jpeg(file, limits);
  if (file.size() > size_t{1} << 30) throw BadPhoto("a file of more than a gigabyte");
  return read_with_opencv(format, file, limits);
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

void write_png(const std::string& path, const Photo& photo) {
  set_up_opencv();
  cv::Mat bgr;
  cv::cvtColor(matrix_of(photo), bgr, cv::COLOR_RGB2BGR);
  std::vector<uint8_t> file;
  if (!cv::imencode(".png", bgr, file)) fail("cannot make a PNG of ", photo.width, " x ", photo.height, " pixels");
  write_file_atomically(path, {reinterpret_cast<const char*>(file.data()), file.size()});
}

}  // namespace owt

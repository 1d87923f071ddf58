// The least cost of preparing photos: decoding, resizing and encoding alone, from memory to memory on all cores.
//
//   usage: prepare_floor THREADS TIMES PHOTO...      each photo TIMES times
//
// Prints images per second for owt's functions and for OpenCV's imdecode, resize and imencode.
#include <atomic>
#include <chrono>
#include <functional>
#include <iostream>
#include <opencv2/imgcodecs.hpp>
#include <opencv2/imgproc.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "data/photos/photo.h"
#include "src/system/files.h"

namespace {

constexpr int64_t kShortSide = 256;
constexpr int kQuality = 90;

void by_owt(const std::string& file) {
  owt::Photo photo = owt::resized(owt::read_photo(file, {.short_side = kShortSide}), kShortSide);
  owt::jpeg_of(photo, {.quality = kQuality});
}

void by_opencv(const std::string& file) {
  const cv::Mat bytes(1, static_cast<int>(file.size()), CV_8U, const_cast<char*>(file.data()));
  const cv::Mat photo = cv::imdecode(bytes, cv::IMREAD_COLOR);
  const double scale = static_cast<double>(kShortSide) / std::min(photo.rows, photo.cols);
  cv::Mat small;
  cv::resize(photo, small, {}, scale, scale, scale < 1 ? cv::INTER_AREA : cv::INTER_LINEAR);
  std::vector<uint8_t> encoded;
  cv::imencode(".jpg", small, encoded, {cv::IMWRITE_JPEG_QUALITY, kQuality, cv::IMWRITE_JPEG_OPTIMIZE, 1});
}

double images_per_second(int threads, int64_t images, const std::vector<std::string>& files,
                         void (*convert)(const std::string&)) {
  const auto begun = std::chrono::steady_clock::now();
  std::atomic<int64_t> next = 0;
  std::vector<std::thread> team;
  for (int i = 0; i < threads; ++i)
    team.emplace_back([&] {
      for (int64_t image; (image = next++) < images;) convert(files[static_cast<size_t>(image) % files.size()]);
    });
  for (std::thread& thread : team) thread.join();
  return static_cast<double>(images) / std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
}

}  // namespace

int main(int count, char** words) {
  if (count < 4) {
    std::cerr << "usage: prepare_floor THREADS TIMES PHOTO...\n";
    return 2;
  }
  const int threads = std::stoi(words[1]);
  std::vector<std::string> files;
  for (int i = 3; i < count; ++i) files.push_back(owt::read_file(words[i]));
  const int64_t images = std::stoll(words[2]) * static_cast<int64_t>(files.size());
  cv::setNumThreads(0);
  std::cout << static_cast<int64_t>(images_per_second(threads, images, files, by_owt)) << " "
            << static_cast<int64_t>(images_per_second(threads, images, files, by_opencv)) << "\n";
}

// Decodes batches of JPEG files on the GPU with nvJPEG, and resizes the windows that the rows show.
//
// Images are decoded whole, by the GPU's engines for JPEG if it has some. The resized pixels are the same function of
// the decoded pixels as on the CPU (data/resize.h); decoded pixels may differ from the CPU decoder's by a few levels.
// No engine has decoded for owt yet: this has run on the simulated GPU only.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "data/jpeg/image_window.h"
#include "data/jpeg/resize_filter.h"
#include "src/core/tensor.h"

struct nvjpegHandle;
struct nvjpegJpegState;

namespace owt {

class DeviceJpeg {
 public:
  // Each row of a batch takes GPU memory for the pixels of a whole image.
  static constexpr int64_t kMostPixels = int64_t{1} << 19, kLeastPixels = 64;
  static constexpr int kMostTaps = 32;  // taps of ResizeFilter: a window has at most 16 times the side of its row

  // Whether a row of side x side pixels of `channels` bytes may hold this file.
  static constexpr bool supports(const FileRow& file, int64_t side, int64_t channels) {
    const int64_t pixels = file.height * file.width;
    return file.bytes <= side * side * channels && pixels >= kLeastPixels && pixels <= kMostPixels &&
           ResizeFilter{file.window.height, side}.taps() <= kMostTaps &&
           ResizeFilter{file.window.width, side}.taps() <= kMostTaps;
  }

  // For batches of at most `rows` rows of side x side pixels of 3 channels, RGB, or 1, the luma, from images of at most
  // `most_pixels` pixels; on the calling host thread's GPU. Throws Error with the cure if nvJPEG is missing or does not
  // work on this GPU.
  DeviceJpeg(int64_t rows, int64_t side, int channels, int64_t most_pixels);
  ~DeviceJpeg();
  DeviceJpeg(const DeviceJpeg&) = delete;
  DeviceJpeg& operator=(const DeviceJpeg&) = delete;

  // Fills pixels (N x side x side x channels, u8, on the GPU) from bytes, of the same shape, and files, N x
  // sizeof(FileRow) bytes. Both are host memory that the GPU can read, and stay as they are until it has. For a file
  // that nvJPEG refuses, on_cpu(row) is called, which writes the row's pixels into `bytes`. unread (1, i32, host memory
  // that the GPU can write) then becomes 0, or 1 + a row that nvJPEG has skipped without an error. All calls pass the
  // same stream.
  void run(const Tensor& bytes, Tensor files, Tensor pixels, const std::function<void(int64_t row)>& on_cpu,
           Tensor unread, const Stream& stream);

 private:
  bool decode(const Tensor& bytes, const FileRow* files, const std::vector<int64_t>& rows, const Stream& stream);
  void decode_or_refuse(const Tensor& bytes, FileRow* files, int64_t rows,
                        const std::function<void(int64_t row)>& on_cpu, const Stream& stream);

  int64_t side_, channels_, image_bytes_;  // image_bytes_: from one decoded image to the next
  Tensor decoded_, files_, unread_;
  nvjpegHandle* handle_ = nullptr;
  nvjpegJpegState* state_ = nullptr;
  int batch_ = 0;         // images of the batch that nvJPEG is ready for; 0: none
  bool refused_ = false;  // whether a refused file was reported
};

}  // namespace owt

#include "data/jpeg/device_jpeg.h"

#include <algorithm>
#include <utility>

#include "data/jpeg/nvjpeg_library.h"
#include "data/jpeg/resize_filter.h"
#include "src/core/launch.cuh"
#include "src/system/check.h"
#include "src/system/log_lines.h"

namespace owt {
namespace {

constexpr const char* kNoMemory = "nvJPEG has no memory; use a smaller batch, or set data.decoder = \"cpu\"";
constexpr int kJpegThreads = 256;
constexpr int kMarkBytes = 192;
constexpr int kTileRows = 8, kTileColumns = 32;  // a tile of the output
constexpr unsigned kMostTileBlocks = 32;         // blocks for an image
constexpr int kMostTaps = DeviceJpeg::kMostTaps;
// From one output row to the next there are at most kMostTaps / 2 input rows, and rounding adds one to their sum.
constexpr int kMostNarrowRows = (kTileRows - 1) * kMostTaps / 2 + 1 + kMostTaps;

struct JpegTask {
  const FileRow* files;
  uint8_t* decoded;
  int64_t image_bytes;
  int side;
  uint8_t* pixels;
  int32_t* unread;
};

// No image begins with these bytes, except one made for it.
__device__ uint8_t mark_of(int i) { return static_cast<uint8_t>((i * 167 + 13) ^ (i >> 3)); }

__global__ void mark_images(const JpegTask task) {
  wait_for_previous_kernel();
  const int i = static_cast<int>(threadIdx.x);
  if (i < kMarkBytes) task.decoded[blockIdx.x * task.image_bytes + i] = mark_of(i);
  if (blockIdx.x == 0 && i == 0) *task.unread = 0;
}

// Resizes one image per blockIdx.x, in tiles: first the rows that a tile depends on, then its columns. Each is rounded
// to bytes, as on the CPU.
template <int kChannels>
__global__ void resize_windows(const JpegTask task) {
  wait_for_previous_kernel();
  constexpr int kTileBytes = kChannels * kTileColumns;
  __shared__ uint16_t across[kTileColumns][kMostTaps], down[kTileRows][kMostTaps];
  __shared__ int across_first[kTileColumns], down_first[kTileRows];
  __shared__ uint8_t narrow[kMostNarrowRows][kTileBytes];
  const int thread = static_cast<int>(threadIdx.x), side = task.side;
  const int64_t row = blockIdx.x;
  const FileRow file = task.files[row];
  if (file.bytes == 0) return;
  const uint8_t* image = task.decoded + row * task.image_bytes;
  if (blockIdx.y == 0) {
    const bool marked = __syncthreads_and(thread >= kMarkBytes || image[thread] == mark_of(thread)) != 0;
    if (marked && thread == 0) atomicMax(task.unread, static_cast<int32_t>(row + 1));
  }
  const ResizeFilter of_columns{file.window.width, side}, of_rows{file.window.height, side};
  const int column_taps = static_cast<int>(of_columns.taps()), row_taps = static_cast<int>(of_rows.taps());
  const int tiles_across = (side + kTileColumns - 1) / kTileColumns;
  const int tiles = tiles_across * ((side + kTileRows - 1) / kTileRows);
  for (int tile = static_cast<int>(blockIdx.y); tile < tiles; tile += static_cast<int>(gridDim.y)) {
    const int left = tile % tiles_across * kTileColumns, top = tile / tiles_across * kTileRows;
    const int columns = min(kTileColumns, side - left), rows = min(kTileRows, side - top);
    if (thread < columns) {
      across_first[thread] = static_cast<int>(of_columns.first(left + thread));
      of_columns.weigh(left + thread, across[thread]);
    }
    if (const int y = thread - kTileColumns; y >= 0 && y < rows) {
      down_first[y] = static_cast<int>(of_rows.first(top + y));
      of_rows.weigh(top + y, down[y]);
    }
    __syncthreads();
    const int first_row = down_first[0], narrow_rows = down_first[rows - 1] + row_taps - first_row;
    const uint8_t* from = image + ((file.window.top + first_row) * file.width + file.window.left) * kChannels;
    for (int i = thread; i < narrow_rows * kTileBytes; i += kJpegThreads) {
      const int y = i / kTileBytes, e = i % kTileBytes, x = e / kChannels;
      if (x >= columns) continue;
      const uint8_t* source = from + (y * file.width + across_first[x]) * kChannels + e % kChannels;
      int sum = ResizeFilter::kOne / 2;
      for (int t = 0; t < column_taps; ++t) sum += across[x][t] * source[t * kChannels];
      narrow[y][e] = static_cast<uint8_t>(sum >> 8);
    }
    __syncthreads();
    uint8_t* to = task.pixels + ((row * side + top) * side + left) * kChannels;
    for (int i = thread; i < rows * kTileBytes; i += kJpegThreads) {
      const int y = i / kTileBytes, e = i % kTileBytes;
      if (e >= columns * kChannels) continue;
      int sum = ResizeFilter::kOne / 2;
      for (int t = 0; t < row_taps; ++t) sum += down[y][t] * narrow[down_first[y] - first_row + t][e];
      to[int64_t{y} * side * kChannels + e] = static_cast<uint8_t>(sum >> 8);
    }
    __syncthreads();
  }
}

nvjpegHandle_t open_nvjpeg() {
  nvjpegStatus_t status = NVJPEG_STATUS_SUCCESS;
  for (const nvjpegBackend_t backend : {NVJPEG_BACKEND_HARDWARE, NVJPEG_BACKEND_GPU_HYBRID}) {
    nvjpegHandle_t handle = nullptr;
    status = nvjpegCreateEx(backend, nullptr, nullptr, 0, &handle);
    if (status == NVJPEG_STATUS_SUCCESS) return handle;
  }
  fail("nvJPEG does not work on this GPU (its status is ", static_cast<int>(status), "); set data.decoder = \"cpu\"");
}

}  // namespace

DeviceJpeg::DeviceJpeg(int64_t rows, int64_t side, int channels, int64_t most_pixels)
    : side_(side),
      channels_(channels),
      image_bytes_(cuda_aligned(std::max<int64_t>(kMarkBytes, channels * most_pixels))),
      decoded_({rows, image_bytes_}, DType::kU8, Device::kCuda),
      files_({rows, static_cast<int64_t>(sizeof(FileRow))}, DType::kU8, Device::kCuda),
      unread_({1}, DType::kI32, Device::kCuda),
      handle_(open_nvjpeg()) {
  if (nvjpegJpegStateCreate(handle_, &state_) == NVJPEG_STATUS_SUCCESS) return;
  nvjpegDestroy(handle_);
  fail(kNoMemory);
}

DeviceJpeg::~DeviceJpeg() {
  nvjpegJpegStateDestroy(state_);
  nvjpegDestroy(handle_);
}

// Decodes these rows together. False: nvJPEG refuses one of them.
bool DeviceJpeg::decode(const Tensor& bytes, const FileRow* files, const std::vector<int64_t>& rows,
                        const Stream& stream) {
  const int64_t row_bytes = bytes.shape().row_elements();
  std::vector<const unsigned char*> data;
  std::vector<size_t> lengths;
  std::vector<nvjpegImage_t> images;
  for (const int64_t row : rows) {
    data.push_back(bytes.data<uint8_t>() + row * row_bytes);
    lengths.push_back(static_cast<size_t>(files[row].bytes));
    images.push_back(
        {{decoded_.data<uint8_t>() + row * image_bytes_}, {static_cast<size_t>(files[row].width * channels_)}});
  }
  nvjpegStatus_t status = NVJPEG_STATUS_SUCCESS;
  if (const auto batch = static_cast<int>(rows.size()); batch_ != batch) {
    stream.synchronize();  // no batch may be under way
    batch_ = batch;
    status =
        nvjpegDecodeBatchedInitialize(handle_, state_, batch, 1, channels_ == 1 ? NVJPEG_OUTPUT_Y : NVJPEG_OUTPUT_RGBI);
  }
  if (status == NVJPEG_STATUS_SUCCESS)
    status = nvjpegDecodeBatched(handle_, state_, data.data(), lengths.data(), images.data(), cuda_stream(stream));
  if (status == NVJPEG_STATUS_SUCCESS) return true;
  batch_ = 0;
  if (status == NVJPEG_STATUS_ALLOCATOR_FAILURE) fail(kNoMemory);
  if (rows.size() == 1 && !std::exchange(refused_, true))
    log_warning(
        concat("nvJPEG refuses a file (its status is ", static_cast<int>(status), "); the CPU decodes such files"));
  return false;
}

// An image's decoder depends on its file only, not on the other images of its batch.
void DeviceJpeg::decode_or_refuse(const Tensor& bytes, FileRow* files, int64_t rows,
                                  const std::function<void(int64_t row)>& on_cpu, const Stream& stream) {
  std::vector<int64_t> all, refused;
  for (int64_t row = 0; row < rows; ++row)
    if (files[row].bytes > 0) all.push_back(row);
  if (all.empty() || decode(bytes, files, all, stream)) return;
  for (const int64_t row : all)
    if (!decode(bytes, files, {row}, stream)) refused.push_back(row);
  stream.synchronize();  // the batch that failed may still read these rows
  for (const int64_t row : refused) {
    on_cpu(row);
    files[row] = {};
  }
}

void DeviceJpeg::run(const Tensor& bytes, Tensor files, Tensor pixels, const std::function<void(int64_t row)>& on_cpu,
                     Tensor unread, const Stream& stream) {
  const int64_t rows = bytes.shape().rows();
  unread.data<int32_t>()[0] = 0;
  if (rows == 0) return;
  auto* file = static_cast<FileRow*>(files.raw());
  const JpegTask task{.files = static_cast<const FileRow*>(files_.raw()),
                      .decoded = decoded_.data<uint8_t>(),
                      .image_bytes = image_bytes_,
                      .side = static_cast<int>(side_),
                      .pixels = pixels.data<uint8_t>(),
                      .unread = unread_.data<int32_t>()};
  launch(mark_images, dim3(static_cast<unsigned>(rows)), dim3(kJpegThreads), stream, task);
  decode_or_refuse(bytes, file, rows, on_cpu, stream);
  files_.rows(0, rows).copy_from(files, stream);
  for (int64_t row = 0; row < rows; ++row)
    if (file[row].bytes == 0) pixels.rows(row, row + 1).copy_from(bytes.rows(row, row + 1), stream);
  const int64_t tiles = ((side_ + kTileColumns - 1) / kTileColumns) * ((side_ + kTileRows - 1) / kTileRows);
  const dim3 grid(static_cast<unsigned>(rows), std::min(kMostTileBlocks, static_cast<unsigned>(tiles)));
  launch(channels_ == 1 ? resize_windows<1> : resize_windows<3>, grid, dim3(kJpegThreads), stream, task);
  unread.copy_from(unread_, stream);
}

}  // namespace owt

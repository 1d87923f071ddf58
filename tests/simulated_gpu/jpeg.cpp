// nvJPEG's batched decoding, with libjpeg: the same pixels as the CPU's decoder.
//
// Files are read when the stream comes to them, so they must stay in place until then. A damaged file is an error if
// its header is wrong; otherwise its image is left as it is.
#include "tests/simulated_gpu/jpeg.h"

#include <atomic>
#include <cstring>
#include <mutex>
#include <string_view>
#include <vector>

#include "data/jpeg/libjpeg.h"
#include "data/jpeg/nvjpeg_api.h"
#include "tests/simulated_gpu/memory.h"
#include "tests/simulated_gpu/runtime.h"

namespace simulated_gpu {
namespace {

std::mutex jpegs_mutex;
Jpegs the_jpegs;
std::atomic<int64_t> jpegs_decoded{0};

Jpegs jpegs() {
  const std::lock_guard lock(jpegs_mutex);
  return the_jpegs;
}

struct JpegImage {
  std::string_view file;
  unsigned char* pixels;
  size_t pitch;
  bool grey;
};

void decode(const JpegImage& image) {
  owt::JpegDecompressor jpeg(owt::JpegErrors::give_up);
  jpeg_decompress_struct& info = jpeg.info;
  jpeg.read_header(image.file);
  jpeg.must([&] {
    info.out_color_space = image.grey ? JCS_GRAYSCALE : JCS_RGB;
    info.dct_method = JDCT_ISLOW;
    info.do_fancy_upsampling = FALSE;
    jpeg_start_decompress(&info);
    for (unsigned char* row = image.pixels; info.output_scanline < info.output_height; row += image.pitch)
      jpeg_read_scanlines(&info, &row, 1);
  });
  jpeg_abort_decompress(&info);
  ++jpegs_decoded;
}

// Baseline JPEG whose image lies in one allocation of a device.
nvjpegStatus_t check(const JpegImage& image) {
  if (!image.file.data() || on_a_device(image.file.data())) return NVJPEG_STATUS_INVALID_PARAMETER;
  try {
    owt::JpegDecompressor jpeg(owt::JpegErrors::give_up);
    jpeg.read_header(image.file);
    const size_t row = size_t{image.grey ? 1U : 3U} * jpeg.info.image_width;
    if (jpeg.info.progressive_mode || jpeg.info.num_components > 3) return NVJPEG_STATUS_JPEG_NOT_SUPPORTED;
    if (image.pitch < row || !on_a_device(image.pixels, image.pitch * (jpeg.info.image_height - 1) + row))
      return NVJPEG_STATUS_INVALID_PARAMETER;
  } catch (const owt::BadPhoto&) {
    return NVJPEG_STATUS_BAD_JPEG;
  }
  const Jpegs now = jpegs();
  return now.refuses && now.refuses(image.file.size()) ? NVJPEG_STATUS_JPEG_NOT_SUPPORTED : NVJPEG_STATUS_SUCCESS;
}

}  // namespace

WithJpegs::WithJpegs(const Jpegs& jpegs) {
  const std::lock_guard lock(jpegs_mutex);
  the_jpegs = jpegs;
}
WithJpegs::~WithJpegs() {
  const std::lock_guard lock(jpegs_mutex);
  the_jpegs = {};
}
int64_t decoded_jpegs() { return jpegs_decoded; }

}  // namespace simulated_gpu

using namespace simulated_gpu;

struct nvjpegHandle {
  int device;
};
struct nvjpegJpegState {
  int batch = 0;  // 0: not ready
  bool grey = false;
};

nvjpegStatus_t nvjpegCreateEx(nvjpegBackend_t backend, void*, void*, unsigned, nvjpegHandle_t* handle) {
  const Jpegs now = jpegs();
  if (!(backend == NVJPEG_BACKEND_HARDWARE ? now.engines : now.kernels)) return NVJPEG_STATUS_ARCH_MISMATCH;
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return NVJPEG_STATUS_INVALID_PARAMETER;
  *handle = new nvjpegHandle{device};
  return NVJPEG_STATUS_SUCCESS;
}

nvjpegStatus_t nvjpegDestroy(nvjpegHandle_t handle) {
  delete handle;
  return NVJPEG_STATUS_SUCCESS;
}

nvjpegStatus_t nvjpegJpegStateCreate(nvjpegHandle_t, nvjpegJpegState_t* state) {
  *state = new nvjpegJpegState;
  return NVJPEG_STATUS_SUCCESS;
}

nvjpegStatus_t nvjpegJpegStateDestroy(nvjpegJpegState_t state) {
  delete state;
  return NVJPEG_STATUS_SUCCESS;
}

nvjpegStatus_t nvjpegDecodeBatchedInitialize(nvjpegHandle_t, nvjpegJpegState_t state, int batch_size, int,
                                             nvjpegOutputFormat_t format) {
  if (batch_size < 1 || (format != NVJPEG_OUTPUT_RGBI && format != NVJPEG_OUTPUT_Y))
    return NVJPEG_STATUS_INVALID_PARAMETER;
  state->batch = batch_size;
  state->grey = format == NVJPEG_OUTPUT_Y;
  return NVJPEG_STATUS_SUCCESS;
}

nvjpegStatus_t nvjpegDecodeBatched(nvjpegHandle_t handle, nvjpegJpegState_t state, const unsigned char* const* data,
                                   const size_t* lengths, nvjpegImage_t* destinations, cudaStream_t stream) {
  int device = 0;
  if (state->batch == 0 || cudaGetDevice(&device) != cudaSuccess || device != handle->device)
    return NVJPEG_STATUS_INVALID_PARAMETER;
  std::vector<JpegImage> images;
  for (int i = 0; i < state->batch; ++i) {
    images.push_back({{reinterpret_cast<const char*>(data[i]), lengths[i]},
                      destinations[i].channel[0],
                      destinations[i].pitch[0],
                      state->grey});
    if (const nvjpegStatus_t status = check(images.back()); status != NVJPEG_STATUS_SUCCESS) {
      state->batch = 0;
      return status;
    }
  }
  const cudaError_t queued = enqueue(stream, {"nvjpegDecodeBatched"}, [images, now = jpegs()] {
    for (const JpegImage& image : images) {
      if (now.skips && now.skips(image.file.size())) continue;
      try {
        decode(image);
      } catch (const owt::BadPhoto&) {
      }
    }
  });
  return queued == cudaSuccess ? NVJPEG_STATUS_SUCCESS : NVJPEG_STATUS_INVALID_PARAMETER;
}

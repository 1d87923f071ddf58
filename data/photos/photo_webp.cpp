#include <webp/decode.h>
#include <webp/demux.h>

#include <memory>
#include <new>
#include <utility>

#include "data/photos/exif.h"
#include "data/photos/photo_formats.h"

namespace owt {
namespace {

using Demuxer = std::unique_ptr<WebPDemuxer, decltype(&WebPDemuxDelete)>;

Demuxer opened(std::string_view file) {
  const WebPData data{reinterpret_cast<const uint8_t*>(file.data()), file.size()};
  WebPDemuxState state = WEBP_DEMUX_PARSE_ERROR;
  Demuxer demuxer(WebPDemuxPartial(&data, &state), WebPDemuxDelete);
  if (state == WEBP_DEMUX_PARSE_ERROR) throw BadPhoto("damaged WebP: its parts do not fit together");
  if (state != WEBP_DEMUX_DONE) throw BadPhoto("truncated WebP");
  return demuxer;
}

int64_t orientation(const WebPDemuxer* demuxer) {
  WebPChunkIterator chunk{};
  const bool found = WebPDemuxGetChunk(demuxer, "EXIF", 1, &chunk) != 0;
  const std::string_view exif(reinterpret_cast<const char*>(chunk.chunk.bytes), found ? chunk.chunk.size : 0);
  const int64_t result = exif_orientation(exif);
  WebPDemuxReleaseChunkIterator(&chunk);
  return result;
}

// The pixels of a frame, R, G, B, A.
std::vector<uint8_t> decoded(const WebPIterator& frame) {
  const int row_bytes = frame.width * 4;
  std::vector<uint8_t> rgba(static_cast<size_t>(row_bytes) * frame.height);
  WebPDecoderConfig config;
  if (!WebPInitDecoderConfig(&config)) fail("libwebp is of another version than its headers");
  config.output.colorspace = MODE_RGBA;
  config.output.is_external_memory = 1;
  config.output.u.RGBA = {rgba.data(), row_bytes, rgba.size()};
  const VP8StatusCode status = WebPDecode(frame.fragment.bytes, frame.fragment.size, &config);
  if (status == VP8_STATUS_OK) return rgba;
  // If memory for transparency is short, libwebp reports damage.
  if (status == VP8_STATUS_OUT_OF_MEMORY) throw std::bad_alloc();
  check_memory(rgba.size());
  throw BadPhoto("damaged WebP: its first frame cannot be decoded");
}

void put_frame(const WebPIterator& frame, Photo& canvas) {
  if (frame.x_offset + int64_t{frame.width} > canvas.width || frame.y_offset + int64_t{frame.height} > canvas.height)
    throw BadPhoto("damaged WebP: a frame lies outside the image");
  const std::vector<uint8_t> rgba = decoded(frame);
  for (int64_t row = 0; row < frame.height; ++row) {
    const int64_t to = (frame.y_offset + row) * canvas.width + frame.x_offset;
    put_over_white(rgba.data() + row * frame.width * 4, frame.width, false, canvas.pixels.data() + to * 3);
  }
}

}  // namespace

Photo read_webp(std::string_view file, const PhotoLimits& limits) {
  const Demuxer demuxer = opened(file);
  const int64_t height = WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_HEIGHT);
  const int64_t width = WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_WIDTH);
  const auto turn = admit(height, width, limits);
  WebPIterator frame{};
  const std::unique_ptr<WebPIterator, decltype(&WebPDemuxReleaseIterator)> release(&frame, WebPDemuxReleaseIterator);
  if (!WebPDemuxGetFrame(demuxer.get(), 1, &frame)) throw BadPhoto("damaged WebP: it has no frame");
  Photo canvas = white(height, width);
  put_frame(frame, canvas);
  return upright(std::move(canvas), orientation(demuxer.get()));
}

}  // namespace owt

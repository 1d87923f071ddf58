#include "data/still.h"

#include <zlib.h>

#include <algorithm>
#include <climits>
#include <utility>
#include <vector>

#include "data/photo.h"

namespace owt {
namespace {

// Numbers in a file; reading beyond its end throws BadPhoto.
class Bytes {
 public:
  Bytes(std::string_view bytes, const char* format) : bytes_(bytes), format_(format) {}

  size_t size() const { return bytes_.size(); }
  std::string_view part(uint64_t offset, uint64_t count) const {
    if (offset > bytes_.size() || count > bytes_.size() - offset) throw BadPhoto(concat("truncated ", format_));
    return bytes_.substr(offset, count);
  }
  uint64_t little(uint64_t offset, int bytes) const {
    const std::string_view digits = part(offset, static_cast<uint64_t>(bytes));
    uint64_t value = 0;
    for (auto digit = digits.rbegin(); digit != digits.rend(); ++digit) value = value << 8 | uint8_t(*digit);
    return value;
  }
  uint64_t big(uint64_t offset, int bytes) const {
    uint64_t value = 0;
    for (const char digit : part(offset, static_cast<uint64_t>(bytes))) value = value << 8 | uint8_t(digit);
    return value;
  }
  [[noreturn]] void damaged(const char* why) const { throw BadPhoto(concat("damaged ", format_, ": ", why)); }

 private:
  std::string_view bytes_;
  const char* format_;
};

// The first directory of a TIFF file, which is also what EXIF data are.
class TiffDirectory {
 public:
  explicit TiffDirectory(const Bytes& bytes) : bytes_(bytes) {
    little_ = bytes.part(0, 2) == "II";
    const bool big_file = number(2, 2) == 43;
    offset_ = big_file ? 8 : 4;
    start_ = number(big_file ? 8 : 4, offset_);
    const int count_bytes = big_file ? 8 : 2;
    entries_ = std::min<uint64_t>(number(start_, count_bytes), bytes.size());
    start_ += static_cast<uint64_t>(count_bytes);
  }

  // The value of a tag that is one number.
  uint64_t value(uint64_t tag, uint64_t otherwise) const {
    const auto entry_bytes = static_cast<uint64_t>(4 + 2 * offset_);
    for (uint64_t i = 0; i < entries_; ++i) {
      const uint64_t entry = start_ + i * entry_bytes;
      if (number(entry, 2) != tag) continue;
      const uint64_t type = number(entry + 2, 2);
      return number(entry + 4 + static_cast<uint64_t>(offset_), type == 1 ? 1 : type == 3 ? 2 : type == 16 ? 8 : 4);
    }
    return otherwise;
  }

  // The values of a tag, which are numbers; none where it is missing.
  std::vector<uint64_t> values(uint64_t tag) const {
    std::vector<uint64_t> all;
    const auto entry_bytes = static_cast<uint64_t>(4 + 2 * offset_);
    for (uint64_t i = 0; i < entries_; ++i) {
      const uint64_t entry = start_ + i * entry_bytes;
      if (number(entry, 2) != tag) continue;
      const uint64_t type = number(entry + 2, 2), count = number(entry + 4, offset_);
      const int bytes = type == 1 ? 1 : type == 3 ? 2 : type == 16 ? 8 : 4;
      if (count > bytes_.size()) bytes_.damaged("a list longer than the file");
      uint64_t at = entry + 4 + static_cast<uint64_t>(offset_);
      if (count * static_cast<uint64_t>(bytes) > static_cast<uint64_t>(offset_)) at = number(at, offset_);
      for (uint64_t k = 0; k < count; ++k) all.push_back(number(at + k * static_cast<uint64_t>(bytes), bytes));
      break;
    }
    return all;
  }

 private:
  uint64_t number(uint64_t offset, int bytes) const {
    return little_ ? bytes_.little(offset, bytes) : bytes_.big(offset, bytes);
  }

  const Bytes& bytes_;
  bool little_ = true;
  int offset_ = 4;  // bytes of an offset
  uint64_t start_ = 0, entries_ = 0;
};

// Nothing but what the pixels are made of: text and colour profiles, which may be bombs of their own, stay behind.
Still png_still(std::string_view file) {
  constexpr size_t kSignature = 8, kAround = 12;  // length, type and checksum of a chunk
  const Bytes bytes(file, "PNG");
  Still still{.file = std::string(bytes.part(0, kSignature))};
  for (size_t at = kSignature;;) {
    const size_t length = bytes.big(at, 4);
    const std::string_view chunk = bytes.part(at, length + kAround), type = chunk.substr(4, 4);
    const std::string_view data = chunk.substr(8, length);
    at += chunk.size();
    if (still.width == 0) {
      if (type != "IHDR" || length != 13) bytes.damaged("it does not start with a header");
      still.width = static_cast<int64_t>(Bytes(data, "PNG").big(0, 4));
      still.height = static_cast<int64_t>(Bytes(data, "PNG").big(4, 4));
      if (still.width == 0 || still.height == 0) bytes.damaged("it has no pixels");
    }
    if (type == "eXIf") still.orientation = exif_orientation(data);
    const bool critical = (type[0] & 0x20) == 0;
    if (!critical && type != "tRNS") continue;
    if (crc32(0, reinterpret_cast<const Bytef*>(type.data()), static_cast<uInt>(length + 4)) !=
        Bytes(chunk, "PNG").big(length + 8, 4))
      bytes.damaged("a checksum does not match");
    still.file += chunk;
    if (type == "IEND") return still;
  }
}

Still bmp_still(std::string_view file) {
  const Bytes bytes(file, "BMP");
  const bool old = bytes.little(14, 4) == 12;
  const auto side = [&](uint64_t offset) -> int64_t {
    return old ? static_cast<int64_t>(bytes.little(offset, 2)) : static_cast<int32_t>(bytes.little(offset, 4));
  };
  const int64_t width = side(18), height = side(old ? 20 : 22);  // a negative height: from top to bottom
  if (width <= 0 || height == 0) bytes.damaged("it has no pixels");
  const uint64_t compression = old ? 0 : bytes.little(30, 4);  // 0 none, 1 and 2 run lengths, 3 bit masks
  if (compression > 3) throw BadPhoto("BMP of a kind that is not supported");
  const bool packed = compression == 1 || compression == 2;
  const bool huge = width > PhotoLimits{}.pixels / std::abs(height);
  const auto row_bytes = (static_cast<uint64_t>(width) * bytes.little(old ? 24 : 28, 2) + 31) / 32 * 4;
  if (!packed && !huge) bytes.part(bytes.little(10, 4), row_bytes * static_cast<uint64_t>(std::abs(height)));
  return {.height = std::abs(height), .width = width};
}

// Whether it is a whole zlib stream, checksum included; counts what it unpacks to, which may be `room` bytes at most.
bool is_zlib_stream(std::string_view data, uint64_t& room) {
  z_stream stream{};
  if (data.size() > UINT_MAX || inflateInit(&stream) != Z_OK) return false;
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(data.data()));
  stream.avail_in = static_cast<uInt>(data.size());
  std::vector<Bytef> block(size_t{1} << 16);
  int result = Z_OK;
  while (result == Z_OK && stream.total_out <= room) {
    stream.next_out = block.data();
    stream.avail_out = static_cast<uInt>(block.size());
    result = inflate(&stream, Z_NO_FLUSH);
  }
  const bool whole = result == Z_STREAM_END && stream.total_out <= room;
  room -= whole ? stream.total_out : 0;
  inflateEnd(&stream);
  return whole;
}

// libtiff decodes what it can and leaves the rest black.
void check_deflated_parts(const TiffDirectory& directory, const Bytes& bytes) {
  constexpr uint64_t kCompression = 259, kDeflate = 8, kOldDeflate = 32946;
  constexpr uint64_t kStrips = 273, kStripBytes = 279, kTiles = 324, kTileBytes = 325;
  const uint64_t compression = directory.value(kCompression, 1);
  if (compression != kDeflate && compression != kOldDeflate) return;
  uint64_t room = uint64_t{1} << 31;  // of 2^28 pixels, 4 channels of 16 bits
  for (const auto& [offsets, counts] : {std::pair(kStrips, kStripBytes), std::pair(kTiles, kTileBytes)}) {
    const std::vector<uint64_t> at = directory.values(offsets), length = directory.values(counts);
    for (size_t i = 0; i < std::min(at.size(), length.size()); ++i)
      if (!is_zlib_stream(bytes.part(at[i], length[i]), room)) bytes.damaged("a part cannot be unpacked");
  }
}

Still tiff_still(std::string_view file) {
  const Bytes bytes(file, "TIFF");
  const TiffDirectory directory(bytes);
  constexpr uint64_t kWidth = 256, kHeight = 257, kExtraSamples = 338, kAssociatedAlpha = 1, kMost = uint64_t{1} << 32;
  const uint64_t width = directory.value(kWidth, 0), height = directory.value(kHeight, 0);
  if (width == 0 || height == 0 || width > kMost || height > kMost) bytes.damaged("it has no size");
  check_deflated_parts(directory, bytes);
  return {.height = static_cast<int64_t>(height),
          .width = static_cast<int64_t>(width),
          .multiplied = directory.value(kExtraSamples, 0) == kAssociatedAlpha};
}

std::string riff_chunk(std::string_view type, std::string_view data) {
  std::string chunk(type);
  for (int shift = 0; shift < 32; shift += 8) chunk += static_cast<char>(data.size() >> shift);
  chunk += data;
  if (data.size() % 2 == 1) chunk += '\0';
  return chunk;
}

// WebP as its RIFF chunks; both the file and a frame of an animation are some.
class WebpChunks {
 public:
  explicit WebpChunks(std::string_view bytes) : bytes_(bytes, "WebP") {}
  // The next one, false at the end.
  bool next() {
    if (at_ + 8 > bytes_.size()) return false;
    type = bytes_.part(at_, 4);
    const uint64_t length = bytes_.little(at_ + 4, 4);
    data = bytes_.part(at_ + 8, length);
    at_ += 8 + length + length % 2;
    return true;
  }

  std::string_view type, data;

 private:
  Bytes bytes_;
  uint64_t at_ = 0;
};

void read_webp_size(const WebpChunks& chunk, Still& still) {
  const Bytes data(chunk.data, "WebP");
  uint64_t width = 0, height = 0;
  if (chunk.type == "VP8X") {
    width = data.little(4, 3) + 1;
    height = data.little(7, 3) + 1;
  } else if (chunk.type == "VP8 ") {
    width = data.little(6, 2) & 0x3fff;
    height = data.little(8, 2) & 0x3fff;
  } else if (chunk.type == "VP8L") {
    const uint64_t bits = data.little(1, 4);
    width = (bits & 0x3fff) + 1;
    height = (bits >> 14 & 0x3fff) + 1;
  }
  if (width == 0 || height == 0) data.damaged("it has no size");
  still.width = static_cast<int64_t>(width);
  still.height = static_cast<int64_t>(height);
}

// The first frame of an animation, as a file.
void cut_webp_frame(std::string_view data, Still& still) {
  constexpr uint64_t kFrameHeader = 16;
  const Bytes frame(data, "WebP");
  const std::string_view parts = frame.part(kFrameHeader, data.size() - std::min<uint64_t>(data.size(), kFrameHeader));
  still.left = static_cast<int64_t>(2 * frame.little(0, 3));
  still.top = static_cast<int64_t>(2 * frame.little(3, 3));
  still.frame_width = static_cast<int64_t>(frame.little(6, 3) + 1);
  still.frame_height = static_cast<int64_t>(frame.little(9, 3) + 1);
  if (still.left + still.frame_width > still.width || still.top + still.frame_height > still.height)
    frame.damaged("a frame lies outside the image");
  constexpr char kHasAlpha = 0x10;
  std::string extended(10, '\0'), body;
  extended.replace(4, 6, frame.part(6, 6));
  for (WebpChunks chunk(parts); chunk.next();) {
    if (chunk.type == "ALPH") extended[0] = kHasAlpha;
    if (chunk.type == "ALPH" || chunk.type == "VP8 " || chunk.type == "VP8L")
      body += riff_chunk(chunk.type, chunk.data);
  }
  if (extended[0] != 0) body = riff_chunk("VP8X", extended) + body;
  still.file = riff_chunk("RIFF", "WEBP" + body);
}

Still webp_still(std::string_view file) {
  const Bytes bytes(file, "WebP");
  Still still;
  WebpChunks chunk(bytes.part(12, std::max<uint64_t>(bytes.little(4, 4), 4) - 4));
  for (bool first = true; chunk.next(); first = false) {
    if (first) read_webp_size(chunk, still);
    if (chunk.type == "EXIF") still.orientation = exif_orientation(chunk.data);
    if (chunk.type == "ANMF" && still.file.empty()) cut_webp_frame(chunk.data, still);
  }
  if (still.width == 0) throw BadPhoto("truncated WebP");
  return still;
}

}  // namespace

PhotoFormat photo_format(std::string_view file) {
  const auto starts = [&](std::string_view magic) { return file.substr(0, magic.size()) == magic; };
  using namespace std::string_view_literals;
  if (file.empty()) throw BadPhoto("empty file");
  if (starts("\xff\xd8\xff")) return PhotoFormat::kJpeg;
  if (starts("\x89PNG\r\n\x1a\n")) return PhotoFormat::kPng;
  if (starts("BM")) return PhotoFormat::kBmp;
  if (starts("RIFF") && file.size() >= 12 && file.substr(8, 4) == "WEBP") return PhotoFormat::kWebp;
  if (starts("II\x2a\0"sv) || starts("MM\0\x2a"sv) || starts("II\x2b\0"sv) || starts("MM\0\x2b"sv))
    return PhotoFormat::kTiff;
  if (starts("GIF8")) throw BadPhoto("a GIF file, which is not supported; convert it to PNG");
  if (file.size() >= 12 && file.substr(4, 4) == "ftyp")
    throw BadPhoto("an HEIC, AVIF or video file, which is not supported; convert it to JPEG");
  throw BadPhoto("no image: neither JPEG, PNG, BMP, WebP nor TIFF");
}

const char* format_name(PhotoFormat format) {
  constexpr const char* kNames[] = {"JPEG", "PNG", "BMP", "WebP", "TIFF"};
  return kNames[static_cast<int>(format)];
}

Still find_still(PhotoFormat format, std::string_view file) {
  Still still;
  if (format == PhotoFormat::kPng) still = png_still(file);
  if (format == PhotoFormat::kBmp) still = bmp_still(file);
  if (format == PhotoFormat::kWebp) still = webp_still(file);
  if (format == PhotoFormat::kTiff) still = tiff_still(file);
  if (still.frame_width == 0) {
    still.frame_width = still.width;
    still.frame_height = still.height;
  }
  return still;
}

int exif_orientation(std::string_view tiff) {
  constexpr uint64_t kOrientation = 274;
  try {
    const Bytes bytes(tiff, "EXIF");
    if (bytes.part(0, 2) != "II" && bytes.part(0, 2) != "MM") return 1;
    const uint64_t value = TiffDirectory(bytes).value(kOrientation, 1);
    return value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  } catch (const BadPhoto&) {
    return 1;
  }
}

}  // namespace owt

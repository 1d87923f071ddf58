#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>

#include "data/photos/bytes.h"
#include "data/photos/photo_formats.h"

namespace owt {
namespace {

using BmpColour = std::array<uint8_t, 3>;
enum Compression : uint32_t { kNone = 0, kRunLengths8 = 1, kRunLengths4 = 2, kBitFields = 3 };

// The bits of one colour in a pixel of 16, 24 or 32 bits.
struct ColourMask {
  uint32_t mask = 0;

  uint8_t of(uint32_t pixel) const {
    if (mask == 0) return 0;
    const int shift = std::countr_zero(mask);
    const uint64_t value = (pixel & mask) >> shift, most = mask >> shift;
    return static_cast<uint8_t>(most == 255 ? value : (value * 255 + most / 2) / most);
  }
};

class BmpReader {
 public:
  explicit BmpReader(std::string_view file) : bytes_(file, "BMP"), whole_(file.size()) {
    read_header();
    if (bits_ <= 8)
      read_palette();
    else
      read_fields();
  }

  Photo read(const PhotoLimits& limits) const {
    const auto turn = admit(height_, width_, limits);
    const bool packed = compression_ == kRunLengths8 || compression_ == kRunLengths4;
    Photo photo = white(height_, width_);
    if (packed)
      unpack(photo);
    else
      copy_rows(photo);
    return photo;
  }

 private:
  [[noreturn]] void unsupported() const { throw BadPhoto("BMP of a kind that is not supported"); }

  // OS/2's first header has 12 bytes and 16-bit sides; all later ones begin like the 40 bytes of Windows' header.
  void read_header() {
    constexpr uint32_t kOld = 12, kWindows = 40;
    data_at_ = bytes_.little(10, 4);
    header_bytes_ = bytes_.little(14, 4);
    old_ = header_bytes_ == kOld;
    if (!old_ && header_bytes_ < kWindows) unsupported();
    const int64_t rows = side(old_ ? 20 : 22);
    width_ = side(18);
    height_ = std::abs(rows);
    from_top_ = rows < 0;
    if (width_ <= 0 || height_ == 0) bytes_.damaged("it has no pixels");
    bits_ = bytes_.little(old_ ? 24 : 28, 2);
    compression_ = old_ ? kNone : bytes_.little(30, 4);
    check_kind();
  }
  int64_t side(uint64_t at) const {
    return old_ ? static_cast<int64_t>(bytes_.little(at, 2)) : static_cast<int32_t>(bytes_.little(at, 4));
  }
  void check_kind() const {
    constexpr std::array kDepths{1u, 4u, 8u, 16u, 24u, 32u};
    const bool known = std::find(kDepths.begin(), kDepths.end(), bits_) != kDepths.end();
    const bool fits = compression_ == kNone || (compression_ == kRunLengths8 && bits_ == 8) ||
                      (compression_ == kRunLengths4 && bits_ == 4) ||
                      (compression_ == kBitFields && (bits_ == 16 || bits_ == 32));
    if (!known || !fits) unsupported();
  }

  // Entries are B, G, R and a fill byte, which OS/2's lack. An index beyond the palette is black.
  void read_palette() {
    const uint64_t entry_bytes = old_ ? 3 : 4, begin = 14 + header_bytes_, end = std::min<uint64_t>(data_at_, whole_);
    const uint64_t room = end > begin ? (end - begin) / entry_bytes : 0;
    const uint64_t said = old_ ? 0 : bytes_.little(46, 4), most = uint64_t{1} << bits_;
    const uint64_t count = std::min({said == 0 ? most : said, most, room});
    for (uint64_t i = 0; i < count; ++i)
      for (uint64_t c = 0; c < 3; ++c)
        palette_[i][c] = static_cast<uint8_t>(bytes_.little(begin + i * entry_bytes + 2 - c, 1));
  }
  void read_fields() {
    if (bits_ == 16) fields_ = {ColourMask{0x7c00}, ColourMask{0x3e0}, ColourMask{0x1f}};
    if (compression_ != kBitFields) return;
    for (uint64_t c = 0; c < 3; ++c) fields_[c].mask = bytes_.little(54 + 4 * c, 4);
  }

  BmpColour colour(uint32_t pixel) const {
    if (bits_ <= 8) return palette_[pixel];
    return {fields_[0].of(pixel), fields_[1].of(pixel), fields_[2].of(pixel)};
  }
  // Rows are numbered as they are stored, usually from the bottom.
  void put(Photo& photo, int64_t row, int64_t x, uint32_t pixel) const {
    const int64_t y = from_top_ ? row : height_ - 1 - row;
    const BmpColour rgb = colour(pixel);
    std::copy(rgb.begin(), rgb.end(), photo.pixels.begin() + (y * width_ + x) * 3);
  }

  void copy_rows(Photo& photo) const {
    const uint64_t row_bytes = (static_cast<uint64_t>(width_) * bits_ + 31) / 32 * 4;
    const Bytes rows(bytes_.part(data_at_, row_bytes * height_), "BMP");
    for (int64_t row = 0; row < height_; ++row)
      for (int64_t x = 0; x < width_; ++x) put(photo, row, x, stored(rows, row * row_bytes, x));
  }
  uint32_t stored(const Bytes& rows, uint64_t row_at, int64_t x) const {
    const uint64_t bit = static_cast<uint64_t>(x) * bits_;
    if (bits_ > 8) return rows.little(row_at + bit / 8, static_cast<int>(bits_ / 8));
    return rows.little(row_at + bit / 8, 1) >> (8 - bits_ - bit % 8) & ((1u << bits_) - 1);
  }

  // Run lengths: (count, index) repeats, (0, 0) ends a row, (0, 1) ends the image, (0, 2) skips, (0, n) copies n
  // indices. Skipped pixels have index 0.
  struct Cursor {
    int64_t row = 0, x = 0;
    uint64_t at;  // offset in the file
  };
  void unpack(Photo& photo) const {
    for (int64_t row = 0; row < height_; ++row)
      for (int64_t x = 0; x < width_; ++x) put(photo, row, x, 0);
    for (Cursor cursor{.at = data_at_}; cursor.row < height_;) {
      const uint32_t count = bytes_.little(cursor.at, 1), value = bytes_.little(cursor.at + 1, 1);
      cursor.at += 2;
      if (count > 0)
        repeat(photo, cursor, count, value);
      else if (value <= 2)
        escape(cursor, value);
      else
        copy(photo, cursor, value);
    }
  }
  void repeat(Photo& photo, Cursor& cursor, uint32_t count, uint32_t value) const {
    for (uint32_t i = 0; i < count; ++i) put_next(photo, cursor, index_of(value, i));
  }
  void escape(Cursor& cursor, uint32_t value) const {
    if (value == 0) cursor = {cursor.row + 1, 0, cursor.at};
    if (value == 1) cursor.row = height_;
    if (value == 2)
      cursor = {cursor.row + bytes_.little(cursor.at + 1, 1), cursor.x + bytes_.little(cursor.at, 1), cursor.at + 2};
  }
  void copy(Photo& photo, Cursor& cursor, uint32_t count) const {
    const uint32_t per_byte = 8 / bits_;
    for (uint32_t i = 0; i < count; ++i)
      put_next(photo, cursor, index_of(bytes_.little(cursor.at + i / per_byte, 1), i));
    cursor.at += (count + 2 * per_byte - 1) / (2 * per_byte) * 2;  // whole 16-bit words
  }
  uint32_t index_of(uint32_t byte, uint32_t i) const { return bits_ == 8 ? byte : i % 2 == 0 ? byte >> 4 : byte & 15; }
  void put_next(Photo& photo, Cursor& cursor, uint32_t index) const {
    if (cursor.x >= width_) bytes_.damaged("a run is longer than its row");
    put(photo, cursor.row, cursor.x++, index);
  }

  Bytes bytes_;
  uint64_t whole_;
  uint64_t data_at_ = 0, header_bytes_ = 0;
  bool old_ = false, from_top_ = false;
  int64_t width_ = 0, height_ = 0;
  uint32_t bits_ = 0, compression_ = kNone;
  std::array<BmpColour, 256> palette_{};
  std::array<ColourMask, 3> fields_{ColourMask{0xff0000}, ColourMask{0xff00}, ColourMask{0xff}};
};

}  // namespace

Photo read_bmp(std::string_view file, const PhotoLimits& limits) { return BmpReader(file).read(limits); }

}  // namespace owt

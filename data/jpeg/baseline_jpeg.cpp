#include "data/jpeg/baseline_jpeg.h"

#include <algorithm>
#include <cstring>

#include "data/jpeg/bad_photo.h"

namespace owt {
namespace {

constexpr std::array<uint8_t, kBlockSize> kZigzag = {0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,
                                                     12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6,  7,  14, 21, 28,
                                                     35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51,
                                                     58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63};

// The place in a BlockGroup's lane of a coefficient in zig-zag order. Places after the last one, which an end of block
// or damaged data lead to, map to the unused place.
constexpr auto kPlaces = [] {
  std::array<uint16_t, kBlockSize + HuffmanTable::kEndOfBlock> places{};
  for (size_t k = 0; k < places.size(); ++k)
    places[k] = static_cast<uint16_t>(kLanes * (k < kBlockSize ? kZigzag[k] : kBlockSize));
  return places;
}();

// JPEG markers.
constexpr int kSof0 = 0xC0, kDht = 0xC4, kRst0 = 0xD0, kEoi = 0xD9, kSos = 0xDA, kDqt = 0xDB, kDri = 0xDD,
              kApp14 = 0xEE;

int byte_at(std::string_view bytes, size_t i) { return static_cast<uint8_t>(bytes[i]); }
int word_at(std::string_view bytes, size_t i) { return byte_at(bytes, i) << 8 | byte_at(bytes, i + 1); }
int64_t up(int64_t x, int64_t unit) { return (x + unit - 1) / unit; }

[[noreturn]] void corrupt(const char* what) { throw BadPhoto(concat("damaged JPEG: ", what)); }

}  // namespace

bool BaselineJpeg::open(std::string_view file) {
  file_ = file;
  height_ = restart_interval_ = 0;
  have_quantization_ = {};
  for (auto& kind : huffman_)
    for (Table& table : kind) table.good = false;
  if (file.size() < 4 || word_at(file, 0) != 0xFFD8) return false;
  for (size_t at = 2; at + 4 <= file.size();) {
    if (byte_at(file, at) != 0xFF) return false;
    const int marker = byte_at(file, at + 1);
    const auto bytes = static_cast<size_t>(word_at(file, at + 2));
    if (bytes < 2 || bytes > file.size() - at - 2) return false;
    const std::string_view body = file.substr(at + 4, bytes - 2);
    at += 2 + bytes;
    if (!read_marker(marker, body)) return false;
    if (marker == kSos) {
      scan_ = at;
      return true;
    }
  }
  return false;
}

bool BaselineJpeg::read_marker(int marker, std::string_view body) {
  switch (marker) {
    case kSof0:
      return height_ == 0 && read_frame_header(body);
    case kDqt:
      return read_quantization_tables(body);
    case kDht:
      return read_huffman_tables(body);
    case kSos:
      return read_scan_header(body);
    case kDri:
      if (body.size() != 2) return false;
      restart_interval_ = word_at(body, 0);
      return true;
    case kApp14:  // may say that the colours are not YCbCr
      return false;
    default:  // application data and comments
      return (marker >= 0xE0 && marker <= 0xEF) || marker == 0xFE;
  }
}

bool BaselineJpeg::read_frame_header(std::string_view body) {
  if (body.size() < 6 || byte_at(body, 0) != 8) return false;
  component_count_ = byte_at(body, 5);
  if ((component_count_ != 1 && component_count_ != 3) || body.size() != 6 + 3 * static_cast<size_t>(component_count_))
    return false;
  h_max_ = v_max_ = 1;
  for (int c = 0; c < component_count_; ++c) {
    const size_t at = 6 + 3 * static_cast<size_t>(c);
    Component& component = components_[static_cast<size_t>(c)];
    component.id = byte_at(body, at);
    component.h = byte_at(body, at + 1) >> 4;
    component.v = byte_at(body, at + 1) & 15;
    component.quantization_table = byte_at(body, at + 2);
    const int most = c == 0 ? 2 : 1;
    if (component.h < 1 || component.h > most || component.v < 1 || component.v > most ||
        component.quantization_table > 3)
      return false;
    if (component_count_ == 1) component.h = component.v = 1;          // T.81 defines a scan of one component so
    if (component_count_ == 3 && component.id != c + 1) return false;  // libjpeg guesses the colour space
    h_max_ = std::max<int64_t>(h_max_, component.h);
    v_max_ = std::max<int64_t>(v_max_, component.v);
  }
  height_ = word_at(body, 1);
  width_ = word_at(body, 3);
  mcus_across_ = up(width_, kBlockSide * h_max_);
  mcus_down_ = up(height_, kBlockSide * v_max_);
  return height_ > 0 && width_ > 0;
}

bool BaselineJpeg::read_quantization_tables(std::string_view body) {
  for (; !body.empty(); body.remove_prefix(1 + kBlockSize)) {
    const int table = byte_at(body, 0);  // the high half: 16-bit numbers
    if (table > 3 || body.size() < 1 + kBlockSize) return false;
    for (size_t k = 0; k < kBlockSize; ++k)
      quantization_[static_cast<size_t>(table)][kZigzag[k]] = static_cast<uint16_t>(byte_at(body, 1 + k));
    have_quantization_[static_cast<size_t>(table)] = true;
  }
  return true;
}

bool BaselineJpeg::read_huffman_tables(std::string_view body) {
  while (!body.empty()) {
    const int kind = byte_at(body, 0) >> 4, number = byte_at(body, 0) & 15;  // 0: DC, 1: AC
    if (kind > 1 || number > 3 || body.size() < 17) return false;
    std::array<uint8_t, 16> counts;
    std::copy_n(body.begin() + 1, counts.size(), counts.begin());
    size_t total = 0;
    for (const uint8_t count : counts) total += count;
    body.remove_prefix(17);
    if (total > 256 || body.size() < total) return false;
    Table& table = huffman_[static_cast<size_t>(kind)][static_cast<size_t>(number)];
    // Most files of a data set have the same tables; building them again would take a tenth of the time.
    const bool same = table.counts == counts && table.symbols.size() == total &&
                      std::equal(table.symbols.begin(), table.symbols.end(), body.begin());
    if (!same) {
      table.counts = counts;
      table.symbols.assign(body.begin(), body.begin() + static_cast<int64_t>(total));
      if (!table.codes.build(counts, table.symbols, kind == 1)) {
        table.counts = {};
        table.symbols.clear();
        return false;
      }
    }
    table.good = true;
    body.remove_prefix(total);
  }
  return true;
}

bool BaselineJpeg::read_scan_header(std::string_view body) {
  const auto count = static_cast<size_t>(component_count_);
  if (height_ == 0 || body.size() != 4 + 2 * count || static_cast<size_t>(byte_at(body, 0)) != count) return false;
  for (size_t c = 0; c < count; ++c) {
    Component& component = components_[c];
    const int tables = byte_at(body, 2 + 2 * c);
    component.dc_table = tables >> 4;
    component.ac_table = tables & 15;
    if (byte_at(body, 1 + 2 * c) != component.id || component.dc_table > 3 || component.ac_table > 3) return false;
    if (!have_quantization_[static_cast<size_t>(component.quantization_table)] ||
        !huffman_[0][static_cast<size_t>(component.dc_table)].good ||
        !huffman_[1][static_cast<size_t>(component.ac_table)].good)
      return false;
  }
  if (restart_interval_ == 0) restart_interval_ = mcus_across_ * mcus_down_;
  return true;
}

void BaselineJpeg::decode(const ImageWindow& window, uint8_t* rgb) {
  OWT_CHECK(window.top >= 0 && window.left >= 0 && window.height >= 1 && window.width >= 1 &&
            window.height <= height_ - window.top && window.width <= width_ - window.left);
  const int64_t mcu_height = kBlockSide * v_max_, mcu_width = kBlockSide * h_max_;
  const Mcus mcus{window.top / mcu_height, (window.top + window.height - 1) / mcu_height, window.left / mcu_width,
                  (window.left + window.width - 1) / mcu_width};
  find_segments(mcus);
  allocate(mcus);
  segment_ = -1;
  for (int64_t row = mcus.top; row <= mcus.bottom; ++row) {
    for (int c = 0; c < component_count_; ++c) {
      std::vector<BlockGroup>& groups = components_[static_cast<size_t>(c)].groups;
      std::memset(groups.data(), 0, groups.size() * sizeof(BlockGroup));
    }
    for (int64_t column = mcus.left; column <= mcus.right; ++column) {
      seek(row * mcus_across_ + column);
      decode_mcu(column - mcus.left);
    }
    transform_row();
    convert_rows(window, mcus, row, rgb);
  }
}

// Whether the window touches one of the MCUs [begin, end).
bool BaselineJpeg::touches(const Mcus& mcus, int64_t begin, int64_t end) const {
  const int64_t row = std::max(begin / mcus_across_, mcus.top), column = begin - row * mcus_across_;
  if (row > mcus.bottom) return false;
  int64_t next = row * mcus_across_ + std::max(column, mcus.left);
  if (column > mcus.right) next = row == mcus.bottom ? end : (row + 1) * mcus_across_ + mcus.left;
  return next < end;
}

void BaselineJpeg::find_segments(const Mcus& mcus) {
  const int64_t total = mcus_across_ * mcus_down_;
  const int64_t needed_end = mcus.bottom * mcus_across_ + mcus.right + 1;  // one past the last MCU that is needed
  data_.resize(file_.size() - scan_ + BitReader::kSlack);
  segments_.clear();
  const auto* next = reinterpret_cast<const uint8_t*>(file_.data()) + scan_;
  const auto* const end = reinterpret_cast<const uint8_t*>(file_.data()) + file_.size();
  size_t filled = 0;
  for (int64_t begin = 0; begin < needed_end; begin += restart_interval_) {
    const bool needed = touches(mcus, begin, std::min(begin + restart_interval_, total));
    Segment segment{filled, filled};
    int marker = 0;
    while (marker == 0) {
      const auto* mark = static_cast<const uint8_t*>(std::memchr(next, 0xFF, static_cast<size_t>(end - next)));
      if (!mark || end - mark < 2) corrupt("it ends too soon");
      marker = mark[1];
      if (needed) {
        const auto bytes = static_cast<size_t>(mark - next) + (marker == 0 ? 1 : 0);
        std::memcpy(data_.data() + filled, next, bytes);
        filled += bytes;
      }
      next = mark + 2;
    }
    segment.end = filled;
    segments_.push_back(segment);
    const bool last = begin + restart_interval_ >= total;
    const int wanted = last ? kEoi : kRst0 + static_cast<int>(begin / restart_interval_ % 8);
    if (marker != wanted) corrupt("a marker is missing or in the wrong place");
  }
  std::memset(data_.data() + filled, 0, BitReader::kSlack);
}

void BaselineJpeg::allocate(const Mcus& mcus) {
  const int64_t columns = mcus.right - mcus.left + 1;
  for (int c = 0; c < component_count_; ++c) {
    Component& component = components_[static_cast<size_t>(c)];
    component.groups_per_row = up(columns * component.h, kLanes);
    component.groups.resize(static_cast<size_t>(component.groups_per_row * component.v));
    component.row_bytes = component.groups_per_row * kLanes * kBlockSide;
    component.pixels.resize(static_cast<size_t>(component.row_bytes * component.v * kBlockSide + kLanes));
  }
  const auto pixels = static_cast<size_t>(columns * h_max_ * kBlockSide + 2 * kLanes);
  for (auto* row : {&red_, &green_, &blue_}) row->assign(pixels, 0);  // the values without chroma
}

// Skips the MCUs before this one in its segment.
void BaselineJpeg::seek(int64_t mcu) {
  if (mcu / restart_interval_ != segment_) {
    segment_ = mcu / restart_interval_;
    next_mcu_ = segment_ * restart_interval_;
    dc_prediction_ = {};
    const Segment& segment = segments_[static_cast<size_t>(segment_)];
    bits_ = BitReader(data_.data() + segment.begin, data_.data() + segment.end);
  }
  while (next_mcu_ < mcu) decode_mcu(-1);
}

void BaselineJpeg::decode_mcu(int64_t column) {
  for (int c = 0; c < component_count_; ++c) {
    Component& component = components_[static_cast<size_t>(c)];
    for (int down = 0; down < component.v; ++down)
      for (int across = 0; across < component.h; ++across) {
        int16_t* block = passed_over_.at[0];
        if (column >= 0) {
          const int64_t place = column * component.h + across;
          const int64_t group = down * component.groups_per_row + place / kLanes;
          block = &component.groups[static_cast<size_t>(group)].at[0][place % kLanes];
        }
        uint32_t& prediction = dc_prediction_[static_cast<size_t>(c)];
        block[0] = static_cast<int16_t>(prediction);
        decode_block(component, block);
        prediction = static_cast<uint16_t>(block[0]);
      }
  }
  ++next_mcu_;
}

// Adds DIFF to the DC coefficient, which holds PRED, and writes the nonzero AC coefficients.
void BaselineJpeg::decode_block(Component& component, int16_t* block) {
  const HuffmanTable& dc = huffman_[0][static_cast<size_t>(component.dc_table)].codes;
  const HuffmanTable& ac = huffman_[1][static_cast<size_t>(component.ac_table)].codes;
  BitReader bits = bits_;
  bits.refill();
  const HuffmanTable::Symbol symbol = dc.next(bits.window());
  if (symbol.code_bits == 0) corrupt("no such code");
  const int32_t difference = extended(bits.window() << symbol.code_bits, symbol.size);
  block[0] = static_cast<int16_t>(block[0] + difference);
  bits.drop(symbol.bits);

  uint32_t k = 0;
  const auto step = [&] {
    const HuffmanTable::Symbol next = ac.next(bits.window());
    k += next.advance;
    block[kPlaces[k]] = static_cast<int16_t>(extended(bits.window() << next.code_bits, next.size));
    bits.drop(next.bits);
    return k < kBlockSize - 1;
  };
  do bits.refill();  // enough for two: a code and its value have at most 27 bits
  while (step() && step());
  bits_ = bits;
  if (k >= kBlockSize && k < HuffmanTable::kEndOfBlock) corrupt("too many coefficients, or no such code");
  if (bits.overrun()) corrupt("a segment ends too soon");
}

void BaselineJpeg::transform_row() {
  for (int c = 0; c < component_count_; ++c) {
    Component& component = components_[static_cast<size_t>(c)];
    for (size_t g = 0; g < component.groups.size(); ++g) {
      const auto row = static_cast<int64_t>(g) / component.groups_per_row;
      const auto column = static_cast<int64_t>(g) % component.groups_per_row;
      inverse_dct(component.groups[g], quantization_[static_cast<size_t>(component.quantization_table)],
                  component.pixels.data() + row * kBlockSide * component.row_bytes + column * kLanes * kBlockSide,
                  component.row_bytes);
    }
  }
}

void BaselineJpeg::convert_rows(const ImageWindow& window, const Mcus& mcus, int64_t mcu_row, uint8_t* rgb) {
  const int64_t mcu_height = kBlockSide * v_max_, mcu_width = kBlockSide * h_max_;
  const int64_t first = mcu_row * mcu_height, left = window.left - mcus.left * mcu_width;
  const int64_t begin = std::max<int64_t>(0, window.top - first);
  const int64_t end = std::min(mcu_height, window.top + window.height - first);
  int64_t chroma_row = -1;
  for (int64_t y = begin; y < end; ++y) {
    if (component_count_ == 3 && y / v_max_ != chroma_row) {
      chroma_row = y / v_max_;
      const uint8_t* cb = components_[1].pixels.data() + chroma_row * components_[1].row_bytes;
      const uint8_t* cr = components_[2].pixels.data() + chroma_row * components_[2].row_bytes;
      upsample_chroma(cb, cr, (mcus.right - mcus.left + 1) * kBlockSide, static_cast<int>(h_max_),
                      {red_.data(), green_.data(), blue_.data()});
    }
    rgb_of(components_[0].pixels.data() + y * components_[0].row_bytes + left,
           {red_.data() + left, green_.data() + left, blue_.data() + left}, window.width,
           rgb + (first + y - window.top) * window.width * 3);
  }
}

}  // namespace owt

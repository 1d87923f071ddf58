#include "data/jpeg/baseline_jpeg.h"

#include <algorithm>
#include <cstring>

#include "data/jpeg/bad_photo.h"
#include "data/jpeg/jpeg_markers.h"

namespace owt {
namespace {

// The place in a BlockGroup's lane of a coefficient in zig-zag order. Places after the last one, which an end of block
// or damaged data lead to, map to the unused place.
constexpr auto kPlaces = [] {
  std::array<uint16_t, kBlockSize + HuffmanTable::kEndOfBlock> places{};
  for (size_t k = 0; k < places.size(); ++k)
    places[k] = static_cast<uint16_t>(kLanes * (k < kBlockSize ? kZigzag[k] : kBlockSize));
  return places;
}();

[[noreturn]] void corrupt(const char* what) { throw BadPhoto(concat("damaged JPEG: ", what)); }

}  // namespace

void BaselineJpeg::decode(const ImageWindow& window, int channels, uint8_t* pixels) {
  OWT_CHECK(window.top >= 0 && window.left >= 0 && window.height >= 1 && window.width >= 1 &&
            window.height <= height_ - window.top && window.width <= width_ - window.left);
  const int64_t mcu_height = kBlockSide * v_max_, mcu_width = kBlockSide * h_max_;
  const Mcus mcus{window.top / mcu_height, (window.top + window.height - 1) / mcu_height, window.left / mcu_width,
                  (window.left + window.width - 1) / mcu_width};
  shown_ = channels == 1 ? components_.first(1) : components_;
  find_segments(mcus);
  allocate(mcus);
  segment_ = -1;
  for (int64_t row = mcus.top; row <= mcus.bottom; ++row) {
    for (Component& component : shown_)
      std::memset(component.groups.data(), 0, component.groups.size() * sizeof(BlockGroup));
    for (int64_t column = mcus.left; column <= mcus.right; ++column) {
      seek(row * mcus_across_ + column);
      decode_mcu(column - mcus.left);
    }
    transform_row();
    convert_rows(window, mcus, row, channels, pixels);
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
      const auto* mark = static_cast<const uint8_t*>(std::memchr(next, 0xFF, end - next));
      if (!mark || end - mark < 2) corrupt("it ends too soon");
      marker = mark[1];
      if (needed) {
        const size_t bytes = mark - next + (marker == 0 ? 1 : 0);
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
  for (Component& component : shown_) {
    component.groups_per_row = parts_of(columns * component.h, kLanes);
    component.groups.resize(component.groups_per_row * component.v);
    component.row_bytes = component.groups_per_row * kLanes * kBlockSide;
    component.pixels.resize(component.row_bytes * component.v * kBlockSide + kLanes);
  }
  const size_t pixels = columns * h_max_ * kBlockSide + 2 * kLanes;
  for (auto* row : {&red_, &green_, &blue_}) row->assign(pixels, 0);  // the values without chroma
}

// Skips the MCUs before this one in its segment.
void BaselineJpeg::seek(int64_t mcu) {
  if (mcu / restart_interval_ != segment_) {
    segment_ = mcu / restart_interval_;
    next_mcu_ = segment_ * restart_interval_;
    for (Component& component : components_) component.prediction = 0;
    const Segment& segment = segments_[segment_];
    bits_ = BitReader(data_.data() + segment.begin, data_.data() + segment.end);
  }
  while (next_mcu_ < mcu) decode_mcu(-1);
}

void BaselineJpeg::decode_mcu(int64_t column) {
  for (size_t c = 0; c < components_.size(); ++c) {
    Component& component = components_[c];
    for (uint32_t down = 0; down < component.v; ++down)
      for (uint32_t across = 0; across < component.h; ++across) {
        int16_t* block = passed_over_.at[0];
        if (column >= 0 && c < shown_.size()) {
          const int64_t place = column * component.h + across;
          const int64_t group = down * component.groups_per_row + place / kLanes;
          block = &component.groups[group].at[0][place % kLanes];
        }
        block[0] = static_cast<int16_t>(component.prediction);
        decode_block(component, block);
        component.prediction = static_cast<uint16_t>(block[0]);
      }
  }
  ++next_mcu_;
}

// Adds DIFF to the DC coefficient, which holds PRED, and writes the nonzero AC coefficients.
void BaselineJpeg::decode_block(Component& component, int16_t* block) {
  const HuffmanTable& dc = huffman_[0][component.dc_table].codes;
  const HuffmanTable& ac = huffman_[1][component.ac_table].codes;
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
  for (Component& component : shown_) {
    for (size_t g = 0; g < component.groups.size(); ++g) {
      const int64_t row = g / component.groups_per_row;
      const int64_t column = g % component.groups_per_row;
      inverse_dct(component.groups[g], quantization_[component.quantization_table],
                  component.pixels.data() + row * kBlockSide * component.row_bytes + column * kLanes * kBlockSide,
                  component.row_bytes);
    }
  }
}

void BaselineJpeg::convert_rows(const ImageWindow& window, const Mcus& mcus, int64_t mcu_row, int channels,
                                uint8_t* pixels) {
  const int64_t mcu_height = kBlockSide * v_max_, mcu_width = kBlockSide * h_max_;
  const int64_t first = mcu_row * mcu_height, left = window.left - mcus.left * mcu_width;
  const int64_t begin = std::max<int64_t>(0, window.top - first);
  const int64_t end = std::min(mcu_height, window.top + window.height - first);
  int64_t chroma_row = -1;
  for (int64_t y = begin; y < end; ++y) {
    const uint8_t* luma = components_[0].pixels.data() + y * components_[0].row_bytes + left;
    uint8_t* to = pixels + (first + y - window.top) * window.width * channels;
    if (channels == 1) {
      std::memcpy(to, luma, window.width);
      continue;
    }
    if (components_.size() == 3 && y / v_max_ != chroma_row) {
      chroma_row = y / v_max_;
      const uint8_t* cb = components_[1].pixels.data() + chroma_row * components_[1].row_bytes;
      const uint8_t* cr = components_[2].pixels.data() + chroma_row * components_[2].row_bytes;
      upsample_chroma(cb, cr, (mcus.right - mcus.left + 1) * kBlockSide, static_cast<int>(h_max_),
                      {red_.data(), green_.data(), blue_.data()});
    }
    rgb_of(luma, {red_.data() + left, green_.data() + left, blue_.data() + left}, window.width, to);
  }
}

}  // namespace owt

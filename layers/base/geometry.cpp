#include "layers/base/geometry.h"

namespace owt {

int64_t Window::count(int64_t extent) const {
  const int64_t room = extent + 2 * pad - kernel + (round_up ? stride - 1 : 0);
  if (room < 0) return 0;
  const int64_t windows = room / stride + 1;
  const bool last_is_outside = (windows - 1) * stride >= extent + pad;
  return round_up && last_is_outside ? windows - 1 : windows;
}

double ConvGeometry::flops(int64_t rows) const {
  return 2.0 * static_cast<double>(rows * out_h * out_w * out_c) *
         static_cast<double>(kernel_h * kernel_w * in_c / groups);
}

ConvGeometry packed_geometry(const ConvGeometry& plain, int64_t block_h, int64_t block_w, int64_t multiple) {
  ConvGeometry packed = plain;
  const int64_t used = block_h * block_w * plain.in_c;
  packed.in_c = (used + multiple - 1) / multiple * multiple;
  if (block_h * block_w == 1) return packed;
  packed.kernel_h = (plain.kernel_h + block_h - 1) / block_h;
  packed.kernel_w = (plain.kernel_w + block_w - 1) / block_w;
  packed.in_h = plain.out_h + packed.kernel_h - 1;
  packed.in_w = plain.out_w + packed.kernel_w - 1;
  packed.stride_h = packed.stride_w = 1;
  packed.top = packed.left = packed.bottom = packed.right = 0;
  return packed;
}

}  // namespace owt

#include "src/files/npy.h"

#include "src/system/check.h"

namespace owt {
namespace {

std::string header_of(const Shape& shape, DType dtype) {
  OWT_CHECK(dtype == DType::kF32 || dtype == DType::kI64);
  std::string text =
      concat("{'descr': '", dtype == DType::kF32 ? "<f4" : "<i8", "', 'fortran_order': False, 'shape': (");
  for (int dim = 0; dim < shape.rank(); ++dim) text += concat(dim > 0 ? ", " : "", shape[dim]);
  text += shape.rank() == 1 ? ",), }" : "), }";    // a Python tuple
  constexpr size_t kBefore = 10, kAlignment = 64;  // bytes of magic, version and length; alignment of the elements
  while ((kBefore + text.size() + 1) % kAlignment != 0) text += ' ';
  text += '\n';
  std::string header("\x93NUMPY\x01\x00", 8);
  header += static_cast<char>(text.size() & 0xff);
  header += static_cast<char>(text.size() >> 8);
  return header + text;
}

}  // namespace

NpyWriter::NpyWriter(const std::string& path, const Shape& shape, DType dtype)
    : file_(path), dtype_(dtype), left_(shape.elements()) {
  file_.write(header_of(shape, dtype));
}

void NpyWriter::write(const Tensor& rows) {
  OWT_CHECK(rows.dtype() == dtype_ && rows.device() == Device::kCpu);
  OWT_CHECK(rows.elements() <= left_, "more rows than the header says");
  file_.write(rows.raw(), static_cast<size_t>(rows.bytes()));
  left_ -= rows.elements();
}

void NpyWriter::close() {
  OWT_CHECK_EQ(left_, 0, "elements are missing");
  file_.close();
}

}  // namespace owt

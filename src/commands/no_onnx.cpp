#include "src/commands/onnx.h"
#include "src/system/check.h"

namespace owt {

void export_onnx(const Settings&, const std::string&, const OnnxOptions&, const std::string&) {
  fail("this program was built without ONNX; install libonnx-dev and libprotobuf-dev and build again");
}

}  // namespace owt

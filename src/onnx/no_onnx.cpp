#include "src/onnx/export.h"
#include "src/onnx/import.h"
#include "src/system/check.h"

namespace owt {
namespace {

constexpr const char* kWithoutOnnx =
    "this program was built without ONNX; install libonnx-dev and libprotobuf-dev and build again";

}  // namespace

void export_onnx(const Settings&, const std::string&, const OnnxOptions&, const std::string&) { fail(kWithoutOnnx); }

ImportOutcome import_onnx(const ImportOptions&) { fail(kWithoutOnnx); }

}  // namespace owt

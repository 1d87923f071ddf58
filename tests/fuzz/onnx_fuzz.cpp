// Reads any bytes as an ONNX model and makes layers of it.
#include "src/onnx/import_layers.h"
#include "tests/fuzz/input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t count) {
  const owt::MemoryFile file(bytes, count);
  owt::try_reading([&] {
    const owt::OnnxSource source(file.path());
    owt::promise(source.graph().node_size() > 0, "a graph has nodes");
    if (source.graph().output_size() == 0 || !source.maker(source.graph().output(0).name())) return;
    const owt::OnnxChain chain = owt::OnnxBlocks(source).between(source.input(), source.graph().output(0).name());
    owt::OnnxToLayers to_layers(source);
    owt::OnnxToLayers::Rows x{{6, 6, 4}};
    to_layers.layers_of(chain, x);
    owt::promise(x.shape.elements() >= 0, "rows have a shape");
    for (const auto& weight : to_layers.weights()) {
      int64_t elements = 1;
      for (const int64_t dim : weight.of.dims) elements *= dim;
      owt::promise(elements == weight.of.elements(), "a weight has as many values as its shape says");
    }
  });
  return 0;
}

#include "src/commands/extract.h"

#include <optional>

#include "src/commands/run.h"
#include "src/core/threads.h"
#include "src/files/npy.h"

namespace owt {
namespace {

// Files have PyTorch's order: rows x C x H x W.
Shape file_shape(const Shape& rows) { return rows.rank() == 4 ? Shape{rows[0], rows[3], rows[1], rows[2]} : rows; }

Tensor in_file_order(const Tensor& y) {
  if (y.shape().rank() != 4) return y;
  Tensor out(file_shape(y.shape()));
  const int64_t channels = y.shape()[3], places = y.shape()[1] * y.shape()[2], row = channels * places;
  parallel_for(y.shape().rows(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n)
      for (int64_t place = 0; place < places; ++place)
        for (int64_t c = 0; c < channels; ++c)
          out.data()[n * row + c * places + place] = y.data()[n * row + place * channels + c];
  });
  return out;
}

}  // namespace

Shape extract(const Settings& settings, const ExtractOptions& options) {
  OWT_CHECK(options.source.photos.empty() || options.labels.empty(), "photos have no labels");
  check_outputs({options.out, options.labels});
  Features network(settings, options.source);
  const int64_t images = network.images();
  const Shape shape = file_shape(network.row().batch_of(images));
  NpyWriter features(options.out, shape, DType::kF32);
  std::optional<NpyWriter> labels;
  if (!options.labels.empty()) labels.emplace(options.labels, Shape{images}, DType::kI64);
  network.each([&](const Tensor& y) { features.write(in_file_order(y)); });
  if (labels) {
    Tensor all({images}, DType::kI64);
    for (int64_t i = 0; i < images; ++i) all.data<int64_t>()[i] = network.label(i);
    labels->write(all);
    labels->close();
  }
  features.close();
  return shape;
}

}  // namespace owt

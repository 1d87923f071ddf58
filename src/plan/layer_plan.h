// The plan of a layer: its layout, its parts on the ranks of a model group, its cost and its transfers.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "layers/base/layer.h"
#include "layers/base/param.h"
#include "src/core/shape.h"

namespace owt {

enum class Layout {
  kBatch,       // rows are split over the ranks
  kReplicated,  // every rank holds the same
  kFeature,     // columns are split over the ranks
  kPartial,     // every rank holds a summand
};
const char* name_of(Layout layout);

// A transfer, as an index into Plan::transfers. The transfer's name is a label for people.
using TransferId = int;
constexpr TransferId kNoTransfer = -1;

// The transfers of a layer in the back part: its input, its output, and the gradients of both. `sums`, which any layer
// may have, adds up its sums over all rows of the step.
struct LayerTransfers {
  TransferId input = kNoTransfer, input_gradient = kNoTransfer, output = kNoTransfer, output_gradient = kNoTransfer;
  TransferId sums = kNoTransfer;
};

constexpr int kEveryPlace = -1;

struct LayerPlan {
  std::string name, type;
  Columns columns;                 // how it can be split
  Shape in, out;                   // shapes of one row, before any split
  Layout layout = Layout::kBatch;  // layout of the output
  std::vector<Slice> parts;        // kFeature: the output columns (channels of images) of each rank of a model group
  // Layers split by input features (DenseSplit): the input columns of each rank of a model group. The outputs are then
  // partial sums of the kFeature outputs.
  std::vector<Slice> inputs;
  // The last layer, if the loss samples classes (layers/sampled.h): the columns of a training step on each rank of a
  // model group, or one number if the layer is not split.
  std::vector<int64_t> sampled;
  int place = kEveryPlace;          // pipeline: the place in a model group whose stage has the layer
  bool gather_before = false;       // the input is all-gathered: kFeature -> kReplicated
  bool in_place = false;            // the output overwrites the input
  bool can_update_at_once = false;  // Layer::can_update_at_once()
  bool by_inputs() const { return !inputs.empty(); }
  bool has_columns() const;  // each rank has columns of the output, not partial sums
  // of_group: place in a model group
  bool is_at(int of_group) const { return place == kEveryPlace || place == of_group; }
  double flops_per_row = 0;            // forward pass, the whole layer
  double backward_flops_per_row = 0;   // backward pass, only gradients that are used
  bool wants_dx = false;               // the gradient of the layer's input is used: an earlier layer learns
  std::vector<Shape> params;           // full shapes, before any split
  std::vector<ParamRole> roles;        // one for each of params
  std::vector<bool> matrices;          // one for each of params: Param::is_matrix
  std::vector<bool> cpu_reads_copy16;  // one for each of params: Param::cpu_reads_copy16
  int64_t weight_bytes = 0;            // all parameters of the whole layer, in f32
  int64_t parameters = 0;              // elements of all parameters except running averages
  int64_t trained = 0;                 // elements of the parameters that are trained
  int64_t scratch_bytes = 0;           // Layer::scratch_bytes(), per row
  int64_t row_group = 1;               // Layer::row_group()
  std::vector<int64_t> forward_sums, backward_sums;  // Layer::step_sums() of the whole layer
  std::vector<LayerPlan> inner;                      // composite layers: the layers inside
  bool begins_branch = false;                        // first layer of a branch of a composite layer
  LayerTransfers transfers;

  bool learns() const;                                         // at least one parameter learns
  bool runs_backward() const { return wants_dx || learns(); }  // all later layers then do too
  int64_t most_elements(const Shape& param) const;      // elements of a parameter on the rank with the largest part
  int64_t gradient_elements(const Shape& param) const;  // fewer than most_elements() if classes are sampled
  int64_t weight_bytes_on_rank() const;                 // all params in f32, on the rank with the largest part
  int64_t velocity_bytes_on_rank() const;               // trained params in f32, on the rank with the largest part
  int64_t inner_elements() const;                       // activation elements per row inside a composite layer
  int64_t scratch_bytes_on_rank() const;                // scratch_bytes in training, on the rank with the largest part
  // Output elements per row, on the rank with the largest part. An evaluation needs all, also if classes are sampled.
  int64_t kept_elements() const;
  Shape out_of(size_t place) const;  // shape of an output row on the rank at this place
  // The fraction of the layer's work in training that is done by the rank with the largest part.
  double share() const;
  // Layer::step_sums() on the rank at this place of its model group.
  std::vector<int64_t> step_sums(Phase phase, int place) const;
  // An output row is pixels_out() groups of columns_out() values: the channels of each pixel, or all features once.
  int64_t columns_out() const { return out[out.rank() - 1]; }
  int64_t pixels_out() const { return out.elements() / columns_out(); }
};

// Activation elements per row that a tape of these layers keeps (src/net/net.h), including those inside composites.
int64_t kept_elements(std::span<const LayerPlan> layers);

// The shape of a row with another number of columns (channels of an image, or features).
Shape with_columns(const Shape& row, int64_t columns);

}  // namespace owt

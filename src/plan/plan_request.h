// What a plan is made for: ranks, strategy, rows, and the settings that change what is sent or kept.
#pragma once

#include <cstdint>
#include <vector>

#include "layers/loss/softmax_loss.h"
#include "src/core/device.h"
#include "src/plan/strategy.h"
#include "src/plan/strategy_options.h"

namespace owt {

// When the dense weights are updated by a strategy of several rounds.
enum class DenseUpdate {
  kStep,   // once, with the gradients of all rounds: exact synchronous SGD
  kRound,  // after every round, with that round's gradient: the paper's variable batch size
};

// Which part of a split dense layer's work a rank does.
enum class DenseSplit {
  kOfStrategy,  // what the strategy does: kLess under owt-d, kColumns under all others
  kColumns,     // some of the outputs, from all inputs
  kRows,        // partial sums of all outputs, from some of the inputs
  kLess,        // for each layer, whichever of kColumns and kRows sends less
};
const char* name_of(DenseSplit split);  // the value of parallel.split

// A GPU updates dense layers beside the backward pass of the layers before them if they have at least this many
// parameters. With fewer, one launch for all parameters is faster.
constexpr int64_t kUpdateBesideFrom = 1 << 20;

struct PlanRequest {
  int ranks = 1;
  Strategy strategy = kDefaultStrategy;
  DenseUpdate dense_update = DenseUpdate::kStep;
  int64_t step_rows = 1;
  int64_t bucket_bytes = 8 << 20;  // a bucket is sent as soon as it holds this much
  Compute on{};                    // equal on all ranks; activations travel in its element type
  bool bf16_transport = false;     // f32 activations and gradients travel as bf16 (comm/bf16_transport.h)
  LossSettings loss{};             // settings of the loss's gradient
  bool whole_logits = false;       // every rank of a model group gets the logits of all its rows
  // The number of consecutive ranks that share one copy of the split layers, a divisor of ranks; 0: all ranks. The
  // other groups are replicas. If no dense layer is split (e.g. dp), every rank has a copy of its own, whatever the
  // value.
  int model_ranks = 0;
  // Local SGD (Stich 2019): with n > 1, each rank updates its weights of the front part (under dp, all weights) with
  // the mean gradient of its own rows. The copies are averaged in one of n steps. Post-local SGD (Lin et al. 2020):
  // steps before epoch average_from are synchronous.
  int average_every = 1;
  double average_from = 0;
  // Steps between updates of the exponential moving average of the weights (EMA); 0: no average is kept.
  int ema_every = 0;
  bool lookahead = false;    // the averages replace the weights after each update (Zhang et al. 2019)
  int optimizer_states = 1;  // tensors that the optimizer keeps per trained parameter (OptimizerSettings::states)
  // Norms that updates wait for (gradient_norms.h), as sums of squares per trained parameter. 0: none; 1: of its
  // gradient; 2: of its gradient and of its values. With norms no update starts before all gradients of the step are
  // complete.
  int norm_sums = 0;
  // kRows and kLess: a first dense layer whose rows arrive whole, in several rounds, is still split by columns.
  DenseSplit split = DenseSplit::kOfStrategy;
  int64_t beside_from = kUpdateBesideFrom;
  bool keeps_gradients = false;  // no weights are updated while their gradients are computed
  // One share per rank: the rows of a step are dealt in proportion (StepRows). Empty: equal shares.
  std::vector<double> shares{};
  // One speed per rank, for predictions, relative to the measured times of the layers. Empty: all 1.
  std::vector<double> speeds{};
  StrategyOptions options{};
  // Gradient accumulation: the micro-batches of a step. One at a time is in memory, and their gradients add up. At most
  // the number of rows of a rank; not available in a pipeline.
  int slices = 1;
  // GPU memory of a rank's batches, besides the images of two of them (data/batch_memory.h): per row of a full step,
  // and independent of the rows.
  int64_t batch_row_bytes = 0, batch_bytes = 0;
  // Steps between renewals of the mirror of a run whose workers may change (src/mirror); 0: they do not change.
  int64_t mirror_every = 0;
};

}  // namespace owt

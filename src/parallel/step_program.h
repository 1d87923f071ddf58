// What a rank needs for steps of one number of rows: the actions, and per micro-batch the tapes, rows and links.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "data/batch.h"
#include "src/parallel/dense_tape.h"
#include "src/parallel/optimizer.h"
#include "src/parallel/rank_loss.h"
#include "src/parallel/seam.h"
#include "src/parallel/step_labels.h"
#include "src/plan/groups.h"
#include "src/plan/order.h"
#include "src/plan/rank_model.h"
#include "src/plan/rounds.h"
#include "src/plan/step_result.h"

namespace owt {

struct BackPart {  // the layers of the back part and the loss, for one number of rows
  BackPart(const Plan& plan, RankModel& model, int64_t rows, const Groups& groups, Profiler* profiler,
           const BackPart* lender);
  DenseTape tape;
  std::optional<RankLoss> loss;  // unset in all stages of a pipeline but the last
};

// The tapes of a rank's steps, by their number of rows. Steps and micro-batches with equally many rows share a tape. A
// tape of fewer rows uses the memory of the largest tape made before it.
class StepTapes {
 public:
  // All arguments but profiler must outlive this; profiler may be null.
  StepTapes(const Plan& plan, RankModel& model, const Groups& groups, Profiler* profiler)
      : plan_(plan), model_(model), groups_(groups), profiler_(profiler), place_(groups.model().rank()) {}

  std::shared_ptr<Tape> front(int64_t rows);
  // Rounds that are under way at the same time have tapes of their own: round modulo tapes(plan, place).
  BackPart& back(int64_t rows, int round);

 private:
  const Plan& plan_;
  RankModel& model_;
  const Groups& groups_;
  Profiler* profiler_;
  int place_;
  std::map<int64_t, std::shared_ptr<Tape>> front_;   // key: rows
  std::map<int, std::map<int64_t, BackPart>> back_;  // [number of the tape][rows]
};

struct RowIndexes {  // row indexes in the step, on the host and, for kernels, on the device
  RowIndexes(std::vector<int64_t> indexes, Device on);
  void give_to(Pass& pass) const;
  int64_t size() const { return std::ssize(host); }
  std::vector<int64_t> host;
  Tensor device;
};

struct MicroBatch {
  // The rank's images of the micro-batch. GPU kernels need images aligned to 16 bytes, which images of odd size may not
  // be; then it returns a copy.
  Tensor images_of(const Tensor& of_batch, const Stream& stream);

  Slice mine;                            // relative to this rank's rows of the step
  std::shared_ptr<Tape> front;           // shared by micro-batches with the same number of rows
  std::shared_ptr<Seam> seam{};          // shared by micro-batches with the same rows on all ranks
  std::shared_ptr<StepLabels> labels{};  // shared as seams are; null if labels do not travel
  RowIndexes front_rows;                 // row indexes of this rank
  std::vector<RowIndexes> back_rows{};   // row indexes of every round
  std::vector<int64_t> round_rows;       // rows of every round, over all replicas
  Tensor aligned_images{};
};

class StepProgram {
 public:
  // The program of rank `rank`. All arguments must outlive this.
  StepProgram(const Plan& plan, const Groups& groups, StepTapes& tapes, int64_t step_rows, int rank);

  // Makes the tapes that are missing; `learns`: for training too.
  void prepare(bool learns);
  bool learns() const { return learns_; }  // prepared for training

  // beside: as planned; otherwise all layers are updated after the backward pass.
  const std::vector<Action>& training(StepKind kind, bool beside);
  const std::vector<Action>& evaluation() const { return evaluation_; }
  MicroBatch& micro_batch(int number) { return micro_batches_[static_cast<size_t>(number)]; }
  BackPart& back(const MicroBatch& micro, int round) const;

  int64_t own_rows() const { return own_rows_; }  // rows of this rank
  int64_t rounds_with_rows() const;
  // The number of updates before this round of the step, if an update follows each round that has rows.
  int updates_before(int round, const MicroBatch& micro) const;
  // The image layout that the first layer prefers; nullopt: plain.
  std::optional<ImageLayout> wanted_images() const;
  // Recomputes outputs that the pass has dropped, and returns the first layer with a value that is not finite, or
  // `first` if that is earlier. In the back part only the last round's rows are searched.
  int32_t bad_layer(Pass pass, const Tensor& images, int32_t first);

 private:
  const Plan& plan_;
  StepTapes& tapes_;
  int place_;
  int64_t step_rows_, own_rows_;
  bool learns_ = false;
  std::map<StepKind, std::vector<Action>> training_, behind_;
  std::vector<Action> evaluation_;
  std::vector<MicroBatch> micro_batches_;
};

// The programs of a rank's steps, by their number of rows, and the tapes that they share.
class StepPrograms {
 public:
  // All arguments but profiler must outlive this; profiler may be null.
  StepPrograms(const Plan& plan, RankModel& model, const Groups& groups, Profiler* profiler)
      : plan_(plan), groups_(groups), tapes_(plan, model, groups, profiler) {}

  StepProgram& of(int64_t step_rows);
  const StepProgram* made(int64_t step_rows) const;  // null: not made yet

 private:
  const Plan& plan_;
  const Groups& groups_;
  StepTapes tapes_;
  std::map<std::pair<int64_t, int>, StepProgram> programs_;  // key: rows of a step, and the rank whose part is computed
};

// The values of a step that the host sends to the device at its start and reads back at its end.
struct StepValues {
  int64_t step;
  StepRates front, back;
  double share;  // weight of this rank in the average of the weights
  double kept;   // Step::Rates::kept
  double gradient_norm;
  ResultSums sums;
  double sampled_classes;  // travels with the sums
  int32_t bad_layer;       // the first layer in the plan with a value that is not finite
};

static_assert(offsetof(StepValues, sampled_classes) == offsetof(StepValues, sums) + sizeof(ResultSums));

// StepValues in memory: on the device, or on the host where the device can copy from and to. Its parts are views.
class StepBlock {
 public:
  StepBlock() = default;
  explicit StepBlock(Tensor memory) : memory_(std::move(memory)) {}
  static Shape shape() { return {static_cast<int64_t>(sizeof(StepValues))}; }

  StepValues& values() const { return *reinterpret_cast<StepValues*>(Tensor(memory_).raw()); }  // on the host only
  void copy_from(const StepBlock& other, const Stream& stream) { memory_.copy_from(other.memory_, stream); }

  Tensor step() const { return part(offsetof(StepValues, step), DType::kI64); }
  Tensor front_rates() const { return part(offsetof(StepValues, front), DType::kF64, StepRates::kNumbers); }
  Tensor back_rates() const { return part(offsetof(StepValues, back), DType::kF64, StepRates::kNumbers); }
  Tensor share() const { return part(offsetof(StepValues, share), DType::kF64); }
  Tensor kept() const { return part(offsetof(StepValues, kept), DType::kF64); }
  Tensor gradient_norm() const { return part(offsetof(StepValues, gradient_norm), DType::kF64); }
  Tensor sums(int64_t count) const { return part(offsetof(StepValues, sums), DType::kF64, count); }
  Tensor sampled_classes() const { return part(offsetof(StepValues, sampled_classes), DType::kF64); }
  Tensor bad_layer() const { return part(offsetof(StepValues, bad_layer), DType::kI32); }

 private:
  Tensor part(size_t offset, DType dtype, int64_t elements = 1) const {
    return memory_.part(static_cast<int64_t>(offset), {elements * size_of(dtype)}).viewed_as(dtype);
  }

  Tensor memory_;
};

// The state of the step that is being queued.
struct StepState {
  BackPart& back(int round) const { return program.back(*micro, round); }

  const Batch& batch;
  StepProgram& program;
  StepKind kind;
  bool learns, averages;  // trains; updates the moving averages of the weights
  bool updates_beside;    // see StepProgram::training()
  const StepBlock& host;  // the step's values on the host
  Pass front_pass, back_pass;
  MicroBatch* micro = nullptr;           // the current one
  Tensor images{};                       // images of the rank's rows of the micro-batch
  Tensor back_input{}, back_gradient{};  // the round's dense input, and the memory for its gradient
  Tensor labels{};                       // labels of the round, or of the rank's own rows of the micro-batch
  Tensor gradient{};                     // gradient of the front part's output
  bool beside = false;                   // some action runs on the second stream
};

}  // namespace owt

// The links of a pipeline stage to its neighbours, for one number of rows per step. For every micro-batch a message
// with activations arrives and one is sent; their gradients travel in the other direction.
//
// Work is queued on the given stream. Messages leave after the work already on it, and it waits for messages that must
// arrive. Micro-batches without rows send nothing. The calls must come in the order of pipeline() in order.cpp.
#pragma once

#include <vector>

#include "src/comm/communicator.h"
#include "src/plan/plan.h"
#include "src/plan/rounds.h"

namespace owt {

class StageLinks {
 public:
  // rank: of all ranks. comm: of the model group; it must outlive this. Opens its routes between stages.
  StageLinks(const Plan& plan, int64_t step_rows, int rank, Communicator& comm);

  // images: the rows of this rank's group; the first stage takes its micro-batches from them.
  void begin(const Tensor& images) { images_ = images; }
  bool is_first() const { return place_ == 0; }

  // The rows of the group in a micro-batch.
  Slice rows(int batch) const { return rows_[static_cast<size_t>(batch)]; }
  // The stage's input: start_input() requests it, wait_for_input() waits for it. It is valid until backward of the
  // micro-batch is over.
  void start_input(int batch, const Stream& stream);
  void wait_for_input(int batch, const Stream& stream) const;
  Tensor input(int batch);
  // The memory for the gradient of the input, and its transfer to the previous stage.
  Tensor input_gradient(int batch) const { return of_batch(input_gradient_, batch); }
  void send_input_gradient(int batch, const Stream& stream);
  void wait_for_sent_gradient(int batch, const Stream& stream) const;

  // The transfer of the stage's output to the next stage, and of its gradient back. The gradient's memory is valid for
  // two micro-batches.
  void send_output(int batch, const Tensor& output, const Stream& stream);
  void wait_for_sent_output(int batch, const Stream& stream) const;
  void start_output_gradient(int batch, const Stream& stream);
  void wait_for_output_gradient(int batch, const Stream& stream) const;
  Tensor output_gradient(int batch) const { return of_batch(output_gradient_, batch); }

 private:
  static size_t turn(int batch) { return static_cast<size_t>(batch) % kRoundsAtOnce; }
  size_t kept(int batch) const { return static_cast<size_t>(batch) % inputs_.size(); }
  bool has_rows(int batch) const { return rows(batch).size() > 0; }
  // The memory is sized for the largest micro-batch, or undefined.
  Tensor of_batch(const Tensor (&gradients)[kRoundsAtOnce], int batch) const {
    const Tensor& all = gradients[turn(batch)];
    return all.defined() ? all.rows(0, rows(batch).size()) : Tensor();
  }
  void connect(const Plan& plan);
  Event receive(Tensor& memory, int from, int batch, const Stream& stream);

  int place_;
  Communicator& comm_;
  std::vector<Slice> rows_;
  Tensor images_;
  std::vector<Tensor> inputs_;  // the inputs that are kept, and one that is arriving
  Tensor input_gradient_[kRoundsAtOnce], output_gradient_[kRoundsAtOnce];
  std::vector<Event> input_came_, gradient_came_, output_left_, gradient_left_;  // index: micro-batch
};

}  // namespace owt

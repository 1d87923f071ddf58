// The links of a pipeline's stage to the stages before and behind it, for one number of rows per step: a message with
// the activations of every micro-batch comes in and one goes out, and their gradients go the other way.
//
// Work is queued on the stream given; messages leave after what is on it, and it waits for what has to arrive. Nothing
// travels of a micro-batch without rows. The order of the calls is that of pipeline() in order.cpp.
#pragma once

#include <vector>

#include "src/comm/communicator.h"
#include "src/parallel/plan.h"

namespace owt {

class StageLinks {
 public:
  // rank: of all. comm: that of the model group, which must outlive this; its routes between stages are opened.
  StageLinks(const Plan& plan, int64_t step_rows, int rank, Communicator& comm);

  // images: what the first stage takes its micro-batches from; the rows of this rank's group.
  void begin(const Tensor& images) { images_ = images; }
  bool is_first() const { return place_ == 0; }

  // Rows of the group in a micro-batch.
  Slice rows(int batch) const { return rows_[static_cast<size_t>(batch)]; }
  // The stage's input: it is asked for, and waited for; then valid until backward of the micro-batch is over.
  void start_input(int batch, const Stream& stream);
  void wait_for_input(int batch, const Stream& stream) const;
  Tensor input(int batch);
  // The gradient of the input: where it goes, and the way to the stage before.
  Tensor input_gradient(int batch) const { return of_batch(input_gradient_, batch); }
  void send_input_gradient(int batch, const Stream& stream);
  void wait_for_sent_gradient(int batch, const Stream& stream) const;

  // The way of the stage's output to the next one, and of its gradient back; that is valid for two micro-batches.
  void send_output(int batch, const Tensor& output, const Stream& stream);
  void wait_for_sent_output(int batch, const Stream& stream) const;
  void start_output_gradient(int batch, const Stream& stream);
  void wait_for_output_gradient(int batch, const Stream& stream) const;
  Tensor output_gradient(int batch) const { return of_batch(output_gradient_, batch); }

 private:
  static size_t turn(int batch) { return static_cast<size_t>(batch) % kRoundsAtOnce; }
  size_t kept(int batch) const { return static_cast<size_t>(batch) % inputs_.size(); }
  bool has_rows(int batch) const { return rows(batch).size() > 0; }
  // There is memory for the largest micro-batch, or none.
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
  std::vector<Tensor> inputs_;  // those that are kept, and one that comes
  Tensor input_gradient_[kRoundsAtOnce], output_gradient_[kRoundsAtOnce];
  std::vector<Event> input_came_, gradient_came_, output_left_, gradient_left_;  // by micro-batch
};

}  // namespace owt

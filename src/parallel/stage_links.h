// The links of a pipeline stage to its neighbours, for one number of rows per step. For every micro-batch (a round of
// the seam) a message with activations arrives and one is sent; their gradients travel in the other direction. The
// first stage takes its micro-batches from the images of the rank's group.
//
// Work is queued on the given stream. Messages leave after the work already on it, and it waits for messages that must
// arrive. Micro-batches without rows send nothing. The calls must come in the order of StageOrder
// (src/plan/strategies/pipeline.cpp).
#pragma once

#include <vector>

#include "src/parallel/seam.h"

namespace owt {

// Opens the routes between stages for steps of these rows; there are none if the plan has no stages. Collective, unlike
// StageLinks. rank, comm: as for StageLinks.
void connect_stages(const Plan& plan, const StepRows& rows, int rank, Communicator& comm);

class StageLinks : public Seam {
 public:
  // rank: of all ranks. comm: of the model group, after connect_stages(); it must outlive this.
  StageLinks(const Plan& plan, const StepRows& rows, int rank, Communicator& comm);

  // The stage's input is valid until backward of the micro-batch is over. images: for the first stage.
  void start(int batch, const Tensor& images, const Stream& stream) override;
  Tensor wait(int batch, const Stream& stream) override;
  Tensor labels(int batch, const Tensor& labels) const override { return part(labels, batch); }
  Tensor gradient(int batch) override { return of_batch(input_gradient_, batch); }
  // The transfer of that gradient to the previous stage.
  void start_back(int batch, const Stream& stream) override;
  void wait_back(int batch, const Stream& stream) override;

  bool backward_is_apart() const override { return true; }
  void send_output(int batch, const Tensor& output, const Stream& stream) override;
  void wait_for_sent_output(int batch, const Stream& stream) const override;
  void start_output_gradient(int batch, const Stream& stream) override;
  void wait_for_output_gradient(int batch, const Stream& stream) const override;
  Tensor output_gradient(int batch) const override { return of_batch(output_gradient_, batch); }

 private:
  static size_t turn(int batch) { return static_cast<size_t>(batch) % kRoundsAtOnce; }
  size_t kept(int batch) const { return static_cast<size_t>(batch) % inputs_.size(); }
  // The rows of the group in a micro-batch.
  Slice rows(int batch) const { return rows_[static_cast<size_t>(batch)]; }
  Tensor part(const Tensor& of_group, int batch) const { return of_group.rows(rows(batch).begin, rows(batch).end); }
  bool has_rows(int batch) const { return rows(batch).size() > 0; }
  // The memory is sized for the largest micro-batch, or undefined.
  Tensor of_batch(const Tensor (&gradients)[kRoundsAtOnce], int batch) const {
    const Tensor& all = gradients[turn(batch)];
    return all.defined() ? all.rows(0, rows(batch).size()) : Tensor();
  }
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

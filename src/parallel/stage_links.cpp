#include "src/parallel/stage_links.h"

#include <algorithm>

#include "src/core/poison.h"
#include "src/plan/plan_rows.h"

namespace owt {

// A route holds as many messages as a stage can be ahead of the next one.
void connect_stages(const Plan& plan, const StepRows& rows, int rank, Communicator& comm) {
  if (plan.stages.empty()) return;
  int64_t most = 0;
  for (int s = 0; s < rows.slices(); ++s)
    for (const Round& round : rows.slice(s).rounds(rank)) most = std::max(most, round.front().size());
  std::vector<Route> routes;
  for (int place = 1; place < plan.model_ranks; ++place) {
    const LayerPlan& first = plan.layer(plan.back_layers(place).begin);
    const int64_t bytes = most * first.in.elements() * size_of(activation_type(plan.request.on.precision));
    routes.push_back({place - 1, place, bytes, tapes(plan, place - 1) + 1});
    if (first.wants_dx) routes.push_back({place, place - 1, bytes, kRoundsAtOnce});
  }
  comm.connect(routes);
}

StageLinks::StageLinks(const Plan& plan, const StepRows& rows, int rank, Communicator& comm)
    : Seam(Tensor()), place_(plan.place_of(rank)), comm_(comm) {
  int64_t most = 0;
  for (const Round& round : rows.rounds(rank)) {
    rows_.push_back({round.front().begin, round.front().end});
    most = std::max(most, rows_.back().size());
  }
  for (auto* const events : {&input_came_, &gradient_came_, &output_left_, &gradient_left_})
    events->resize(rows_.size());
  const Slice layers = plan.back_layers(place_);
  const auto activations = [&](const Shape& row) {
    return Tensor(row.batch_of(most), activation_type(plan.request.on.precision), plan.request.on.device);
  };
  const bool sends_gradients = place_ > 0 && plan.layer(layers.begin).wants_dx;
  inputs_.resize(static_cast<size_t>(tapes(plan, place_)) + 1);
  if (place_ > 0)
    for (Tensor& input : inputs_) input = activations(plan.layer(layers.begin).in);
  if (sends_gradients)
    for (Tensor& gradient : input_gradient_) gradient = activations(plan.layer(layers.begin).in);
  if (!plan.has_loss(place_) && plan.layer(layers.end).wants_dx)
    for (Tensor& gradient : output_gradient_) gradient = activations(plan.layer(layers.end).in);
}

Event StageLinks::receive(Tensor& memory, int from, int batch, const Stream& stream) {
  poison(memory, stream);
  Tensor part = memory.rows(0, rows(batch).size());
  return comm_.receive(part, from, stream.record());
}

void StageLinks::start(int batch, const Tensor& images, const Stream& stream) {
  images_ = images;
  if (place_ > 0 && has_rows(batch))
    input_came_[static_cast<size_t>(batch)] = receive(inputs_[kept(batch)], place_ - 1, batch, stream);
}

Tensor StageLinks::wait(int batch, const Stream& stream) {
  if (place_ == 0) return part(images_, batch);
  if (has_rows(batch)) stream.wait(input_came_[static_cast<size_t>(batch)]);
  return inputs_[kept(batch)].rows(0, rows(batch).size());
}

void StageLinks::start_back(int batch, const Stream& stream) {
  if (!has_rows(batch)) return;
  gradient_left_[static_cast<size_t>(batch)] = comm_.send(gradient(batch), place_ - 1, stream.record());
}

void StageLinks::wait_back(int batch, const Stream& stream) {
  if (!has_rows(batch)) return;
  stream.wait(gradient_left_[static_cast<size_t>(batch)]);
  poison(gradient(batch), stream);
}

void StageLinks::send_output(int batch, const Tensor& output, const Stream& stream) {
  if (has_rows(batch)) output_left_[static_cast<size_t>(batch)] = comm_.send(output, place_ + 1, stream.record());
}

void StageLinks::wait_for_sent_output(int batch, const Stream& stream) const {
  if (has_rows(batch)) stream.wait(output_left_[static_cast<size_t>(batch)]);
}

void StageLinks::start_output_gradient(int batch, const Stream& stream) {
  if (has_rows(batch))
    gradient_came_[static_cast<size_t>(batch)] = receive(output_gradient_[turn(batch)], place_ + 1, batch, stream);
}

void StageLinks::wait_for_output_gradient(int batch, const Stream& stream) const {
  if (has_rows(batch)) stream.wait(gradient_came_[static_cast<size_t>(batch)]);
}

}  // namespace owt

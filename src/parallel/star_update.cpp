#include "src/parallel/star_update.h"

#include <algorithm>

#include "src/comm/sums.h"
#include "src/core/canonical.h"
#include "src/core/dispatch.h"
#include "src/core/poison.h"

namespace owt {
namespace {

std::vector<Route> routes_of_star(const Plan& plan) {
  int64_t largest = 0;
  for (const Bucket& bucket : plan.buckets)
    largest = std::max(largest, bucket.elements * size_of(weight_sum_type(plan.request.on)));
  std::vector<Route> routes;
  for (int r = 1; r < plan.ranks(); ++r) {
    routes.push_back({.from = r, .to = 0, .bytes = largest});
    routes.push_back({.from = 0, .to = r, .bytes = largest});
  }
  return routes;
}

}  // namespace

int64_t star_slot_elements(const Plan& plan, int slot) {
  int64_t most = 0;
  for (size_t b = static_cast<size_t>(slot); b < plan.buckets.size(); b += kStarSlots)
    most = std::max(most, plan.buckets[b].elements);
  return most;
}

StarUpdate::StarUpdate(const Plan& plan, const LayerOf& layer_of, Communicator& comm)
    : UpdateInShares(plan, layer_of, comm), ways_(plan.buckets.size()) {
  comm.connect(routes_of_star(plan));
  if (!is_first()) return;
  for (int s = 0; s < kStarSlots; ++s)
    slots_[static_cast<size_t>(s)].values = Tensor({(plan.ranks() - 1) * star_slot_elements(plan, s)},
                                                   weight_sum_type(plan.request.on), plan.request.on.device);
}

Tensor StarUpdate::received(int bucket, int from) {
  const Shape shape = group(bucket).gradients.shape();
  return slot(bucket).values.part((from - 1) * shape.elements(), shape);
}

// The first buckets of a step may use their slots, since the previous step is over.
void StarUpdate::start_gradients(int bucket, const Stream& stream) {
  Group& at = group(bucket);
  Way& on_way = way(bucket);
  complete(at, stream);
  on_way.mine = stream.record();
  on_way.gradients.clear();
  if (!is_first()) return void(on_way.gradients = {at.comm->send(at.gradients, 0, on_way.mine)});
  const Event& free = bucket < kStarSlots ? on_way.mine : slot(bucket).free;
  for (int r = 1; r < comm_.ranks(); ++r) {
    Tensor theirs = received(bucket, r);
    on_way.gradients.push_back(at.comm->receive(theirs, r, free));
  }
}

void StarUpdate::wait_for_gradients(int bucket, const Stream& stream) {
  for (const Event& message : way(bucket).gradients) stream.wait(message);
  if (is_first()) add_up(bucket, stream);
}

// Sum, not mean: the loss already carries 1/N (layers/loss/softmax_loss.h).
void StarUpdate::add_up(int bucket, const Stream& stream) {
  Tensor& sum = group(bucket).gradients;
  stream.wait(way(bucket).mine);
  std::vector<const void*> addends{sum.raw()};
  for (int r = 1; r < comm_.ranks(); ++r) addends.push_back(received(bucket, r).raw());
  dispatch(stream.device(), [&](auto tag) { sum_up(tag, sum.dtype(), addends, sum.elements(), sum.raw(), stream); });
  poison(slot(bucket).values, stream);
  slot(bucket).free = stream.record();
}

void StarUpdate::start_weights(int bucket, const Stream& stream) {
  Tensor& values = group(bucket).values;
  Communicator& comm = comm_.unrounded();
  std::vector<Event>& messages = way(bucket).weights;
  messages.clear();
  if (!is_first()) return void(messages = {comm.receive(values, 0, stream.record())});
  for (int r = 1; r < comm.ranks(); ++r) messages.push_back(comm.send(values, r, stream.record()));
}

void StarUpdate::wait_for_weights(int bucket, const Stream& stream) {
  for (const Event& message : way(bucket).weights) stream.wait(message);
  renew_copies(group(bucket), stream);
}

}  // namespace owt

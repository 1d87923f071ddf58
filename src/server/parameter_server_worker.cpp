// The part of a worker: it pushes gradients to the servers and receives their weights.
#include <algorithm>

#include "src/plan/wire_bytes.h"
#include "src/server/parameter_server.h"

namespace owt {

void ParameterServer::list_tensors(const LayerOf& layer_of) {
  std::vector<size_t> first(plan_.layers.size());  // index of a layer's first parameter
  for (size_t i = 1; i < first.size(); ++i) first[i] = first[i - 1] + plan_.layers[i - 1].params.size();
  for (const Bucket& bucket : plan_.buckets) {
    std::vector<Slice> places;
    std::vector<BucketTensor>& tensors = tensors_.emplace_back();
    int64_t begin = 0;
    for (const int64_t layer : bucket.layers) {
      size_t number = first[static_cast<size_t>(layer)];
      for (const Param* param : layer_of(layer).params()) {
        const size_t its = number++;
        if (!bucket.holds(param->role)) continue;
        tensors.push_back({param, its});
        places.push_back({begin, begin + param->shape().elements()});
        begin += aligned_elements(param->shape().elements());
      }
    }
    messages_.emplace_back(plan_.request.options.server.filters, std::move(places));
  }
}

void ParameterServer::filter_with(uint64_t seed, std::function<double(const Param&)> penalty) {
  OWT_CHECK(filters_gradients(plan_) && threads_.empty());
  filter_.emplace(plan_.request.options.server.filters, seed, rank());
  penalty_ = std::move(penalty);
}

bool ParameterServer::start_push(const Tensor& sums, const PushedFor& pushed, int64_t step) {
  begin();
  pushed_ = pushed;
  step_ = step;
  PushHeader header{.pushed = pushed};
  std::copy_n(sums.data<double>(), kStepSums, header.sums.begin());
  send_header(header);
  board_.note(rank(), header.sums);
  return true;
}

ResultSums ParameterServer::take_sums() {
  ResultSums sums{};
  waiting([&] { sums = board_.take_sums(); });
  return sums;
}

void ParameterServer::start_gradients(int bucket, const Stream& stream) {
  if (!computes()) return;
  Group& at = group(bucket);
  complete(at, stream);
  Communicator& to = plan_.buckets[static_cast<size_t>(bucket)].trained ? *pushes_ : pushes_->unrounded();
  way(bucket).gradients.clear();
  way(bucket).packed.clear();
  if (filters(bucket)) filter(bucket);
  waiting([&] {
    for (const int server : servers()) {
      if (filters(bucket)) {
        send_filtered(bucket, server);
        continue;
      }
      const Slice theirs = share_of(bucket, server);
      way(bucket).gradients.push_back(to.send(at.gradients.part(theirs.begin, {theirs.size()}), server, Event()));
    }
  });
}

// A worker without rows sends no entries and draws no random numbers.
void ParameterServer::filter(int bucket) {
  Tensor& gradients = group(bucket).gradients;
  const PushMessage& message = messages_[static_cast<size_t>(bucket)];
  std::vector<Filtered>& filtered = way(bucket).filtered;
  filtered.clear();
  for (size_t t = 0; t < message.tensors().size(); ++t) {
    const auto& [param, number] = tensors_[static_cast<size_t>(bucket)][t];
    const Slice place = message.tensors()[t];
    const auto elements = static_cast<size_t>(place.size());
    if (pushed_.share == 0) {
      filtered.push_back({.sent = Sent(elements, !plan_.request.options.server.filters.chooses())});
      continue;
    }
    const Penalised of{{param->value.data(), elements}, penalty_(*param) * pushed_.share};
    filtered.push_back(filter_->apply(number, {gradients.data() + place.begin, elements}, step_, of));
  }
}

void ParameterServer::send_filtered(int bucket, int server) {
  const PushMessage& message = messages_[static_cast<size_t>(bucket)];
  Way& its = way(bucket);
  const Slice theirs = share_of(bucket, server);
  const auto send = [&](const Tensor& tensor) {
    its.packed.push_back(tensor);
    its.gradients.push_back(pushes_->send(tensor, server, Event()));
  };
  if (plan_.request.options.server.filters.chooses()) {
    Tensor number({1}, DType::kI64);
    *number.data<int64_t>() = message.count(its.filtered, theirs);
    send(number);
  }
  if (const Tensor packed = message.packed(group(bucket).gradients, its.filtered, theirs); packed.bytes() > 0)
    send(packed);
}

void ParameterServer::wait_for_gradients(int bucket, const Stream& stream) {
  waiting([&] {
    for (const Event& message : way(bucket).gradients) stream.wait(message);
  });
}

void ParameterServer::push_own(int bucket) {
  if (!pushes_to_itself()) return;
  const Slice mine = share_of(bucket, rank());
  waiting([&] { range(bucket).push_own(group(bucket).gradients.part(mine.begin, {mine.size()}), pushed_); });
}

void ParameterServer::start_weights(int bucket, const Stream&) {
  way(bucket).weights.clear();
  if (!computes()) return;
  waiting([&] {
    for (const int server : servers()) {
      const Slice theirs = share_of(bucket, server);
      Tensor values = group(bucket).values.part(theirs.begin, {theirs.size()});
      way(bucket).weights.push_back(answers_->receive(values, server, Event()));
    }
  });
}

// Answers that this rank's server owes count as bytes of the current step, whenever they leave.
void ParameterServer::wait_for_weights(int bucket, const Stream& stream) {
  waiting([&] {
    for (const Event& message : way(bucket).weights) stream.wait(message);
    if (pushes_to_itself()) range(bucket).await();
  });
  for (const ParamPart& part : share(bucket)) {
    part.param->grad_is_zero = true;
    ++part.param->version;
  }
  renew_copies(group(bucket), stream);
  const int answered = plan_.computing_ranks() - (computes() ? 1 : 0);
  comm_.count_sent(answered * share_of(bucket, rank()).size() * size_of(DType::kF32));
}

}  // namespace owt

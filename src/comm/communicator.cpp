#include "src/comm/communicator.h"

#include <algorithm>

namespace owt {
namespace {

bool sums(Collective collective) {
  return collective == Collective::kAllReduce || collective == Collective::kReduceScatter ||
         collective == Collective::kReduce;
}

void check_sizes(const Call& call, int ranks) {
  const Tensor &in = call.in, &out = call.out;
  OWT_CHECK(call.root >= 0 && call.root < ranks, name_of(call.collective), " with root ", call.root, " of ", ranks);
  if (call.collective == Collective::kAllGather)
    OWT_CHECK_EQ(out.bytes(), in.bytes() * ranks, "all_gather brings ", ranks, " ranks' tensors together");
  else if (call.collective == Collective::kReduceScatter)
    OWT_CHECK_EQ(in.bytes(), out.bytes() * ranks, "reduce_scatter shares a sum out among ", ranks, " ranks");
  else if (in.defined() && out.defined())
    OWT_CHECK_EQ(out.bytes(), in.bytes(), name_of(call.collective), " leaves the size as it is");
  if (call.collective == Collective::kAllToAll)
    OWT_CHECK_EQ(in.elements() % ranks, 0, "all_to_all takes equal parts for ", ranks, " ranks");
}

void check_summed(DType dtype) {
  OWT_CHECK(dtype == DType::kF32 || dtype == DType::kF64 || dtype == DType::kBF16, "sums are of f32, f64 or bf16, not ",
            name_of(dtype));
}

}  // namespace

const char* name_of(Collective collective) {
  switch (collective) {
    case Collective::kAllReduce:
      return "all_reduce";
    case Collective::kAllGather:
      return "all_gather";
    case Collective::kReduceScatter:
      return "reduce_scatter";
    case Collective::kBroadcast:
      return "broadcast";
    case Collective::kReduce:
      return "reduce";
    case Collective::kAllToAll:
      return "all_to_all";
    case Collective::kSend:
      return "send";
    case Collective::kReceive:
      return "receive";
  }
  return "";
}

int64_t bytes_sent(Collective collective, int64_t bytes, int ranks) {
  if (is_message(collective)) return collective == Collective::kSend ? bytes : 0;
  const int64_t passes = collective == Collective::kAllReduce ? 2 : 1;
  return passes * bytes * (ranks - 1) / ranks;
}

Event Communicator::all_reduce(Tensor& sum, const Event& ready) {
  return checked({Collective::kAllReduce, sum, sum, 0, ready});
}

Event Communicator::all_gather(const Tensor& mine, Tensor& all, const Event& ready) {
  return checked({Collective::kAllGather, mine, all, 0, ready});
}

Event Communicator::reduce_scatter(const Tensor& all, Tensor& mine, const Event& ready) {
  return checked({Collective::kReduceScatter, all, mine, 0, ready});
}

Event Communicator::broadcast(const Tensor& from_root, Tensor& out, int root, const Event& ready) {
  return checked({Collective::kBroadcast, rank() == root ? from_root : Tensor(), out, root, ready});
}

Event Communicator::reduce(const Tensor& mine, Tensor& sum_on_root, int root, const Event& ready) {
  return checked({Collective::kReduce, mine, rank() == root ? sum_on_root : Tensor(), root, ready});
}

Event Communicator::all_to_all(const Tensor& mine, Tensor& theirs, const Event& ready) {
  return checked({Collective::kAllToAll, mine, theirs, 0, ready});
}

std::string wrong_size(int from, const std::string& sent_bytes, int64_t wanted_bytes) {
  return concat("a message from rank ", from, " has ", sent_bytes, " bytes, wanted ", wanted_bytes,
                "; the ranks do not follow the same order of messages");
}

void Communicator::connect(const std::vector<Route>& routes) {
  auto all = routes_;
  for (const Route& route : routes) {
    OWT_CHECK(route.from != route.to && std::min(route.from, route.to) >= 0 && std::max(route.from, route.to) < ranks(),
              "a route from rank ", route.from, " to rank ", route.to, " of ", ranks());
    Route& both = all.try_emplace({route.from, route.to}, route).first->second;
    both.bytes = std::max(both.bytes, route.bytes);
    both.under_way = std::max(both.under_way, route.under_way);
  }
  std::vector<Route> changed;
  for (const auto& [ends, route] : all)
    if (!routes_.contains(ends) || routes_.at(ends) != route) changed.push_back(route);
  if (!changed.empty()) open(changed);
  routes_ = std::move(all);
}

Event Communicator::send(const Tensor& tensor, int to, const Event& ready) {
  check_route(rank(), to, tensor);
  return run({Collective::kSend, tensor, {}, to, ready});
}

Event Communicator::receive(Tensor& tensor, int from, const Event& ready) {
  check_route(from, rank(), tensor);
  return run({Collective::kReceive, {}, tensor, from, ready});
}

void Communicator::check_route(int from, int to, const Tensor& tensor) const {
  const auto route = routes_.find({from, to});
  OWT_CHECK(route != routes_.end() && route->second.bytes >= tensor.bytes(), "no route for ", tensor.bytes(),
            " bytes from rank ", from, " to rank ", to, " of ", ranks(), "; open it with connect()");
}

Event Communicator::checked(const Call& call) {
  check_sizes(call, ranks());
  if (sums(call.collective)) check_summed(call.in.dtype());
  return run(call);
}

}  // namespace owt

#include "src/server/parameter_server.h"

#include <algorithm>
#include <cstring>

#include "src/comm/bf16_transport.h"
#include "src/comm/lost_ranks.h"
#include "src/comm/on_host.h"
#include "src/core/canonical.h"
#include "src/core/profiler.h"
#include "src/core/threads.h"
#include "src/plan/plan_updates.h"
#include "src/plan/wire_bytes.h"

namespace owt {
namespace {

// Sent in place of the number of rows. kGoodbye: there are no more steps. kWithout: rank 0 continues without the worker
// whose number follows. kMet: the rank has reached meet(), and rank 0 has sent all kWithout of it.
constexpr double kGoodbye = -1, kWithout = -2, kMet = -3;

std::vector<Route> routes_of(const Plan& plan) {
  int64_t largest = kPushHeaderBytes;
  for (const Bucket& bucket : plan.buckets) {
    const int64_t each = bucket.elements / updating_ranks(plan);
    const PushMessage filtered(plan.request.options.server.filters,
                               std::vector<Slice>(static_cast<size_t>(trained_tensors(plan, bucket))));
    largest = std::max({largest, each * size_of(weight_sum_type(plan.request.on)), filtered.most_bytes({0, each})});
  }
  std::vector<Route> routes;
  for (int from = 0; from < plan.ranks(); ++from)
    for (int to = 0; to < plan.ranks(); ++to)
      if (from != to) routes.push_back({.from = from, .to = to, .bytes = largest});
  return routes;
}

// The message is the f64 values of the struct.
static_assert(sizeof(PushHeader) == kPushHeaderBytes);

Tensor packed_header(const PushHeader& header) {
  Tensor values({kPushHeaderBytes / 8}, DType::kF64);
  std::memcpy(values.raw(), &header, kPushHeaderBytes);
  return values;
}

// Residuals of the filters, and the messages.
int64_t filter_bytes(const Plan& plan) {
  if (!filters_gradients(plan)) return 0;
  int64_t bytes = 0;
  for (const Bucket& bucket : plan.buckets)
    bytes += wire_bytes(plan, bucket) +
             (plan.request.options.server.filters.holds_back() ? bucket.elements * size_of(DType::kF32) : 0);
  return bytes;
}

}  // namespace

int64_t server_bytes(const Plan& plan) {
  if (plan.updates() != Updates::kServers) return 0;
  int64_t elements = 0;
  for (const Bucket& bucket : plan.buckets) elements += bucket.elements / updating_ranks(plan);
  const int own = plan.computes(plan.ranks() - 1) ? 0 : kNoWorker;  // the last rank always serves
  return WeightRange::tensors(plan.computing_ranks(), own, plan.request.options.server.rules) * elements *
             size_of(weight_sum_type(plan.request.on)) +
         filter_bytes(plan);
}

// Servers update in threads of their own, which the profiler does not cover.
std::unique_ptr<WeightSync> make_parameter_server(const Plan& plan, const WeightSync::LayerOf& layer_of,
                                                  Communicator& comm, Optimizer& optimizer, uint64_t seed) {
  OWT_CHECK(plan.request.on.device == Device::kCpu);
  auto server = std::make_unique<ParameterServer>(plan, layer_of, comm);
  server->update_with([&optimizer](auto parts, const PushedFor& pushed, double scale, int64_t updates) {
    const StepRates rates{pushed.weights, pushed.biases, static_cast<double>(updates), pushed.sgd_share};
    optimizer.update(parts, {rates}, scale, Stream());
  });
  if (filters_gradients(plan))
    server->filter_with(seed, [&optimizer](const Param& param) { return optimizer.settings().penalty(param); });
  return server;
}

namespace {

// Waits for the message; returns false if the other rank is gone.
bool has_ended(const Event& message) {
  try {
    message.wait();
    return true;
  } catch (const PeerGone&) {
    return false;
  }
}

}  // namespace

ParameterServer::ParameterServer(const Plan& plan, const LayerOf& layer_of, Communicator& comm)
    : UpdateInShares(plan, layer_of, comm),
      plan_(plan),
      rules_(plan.request.options.server.rules),
      exceptions_(std::uncaught_exceptions()),
      pushes_(comm.split(0)),
      answers_(comm.unrounded().split(0)),
      ways_(plan.buckets.size()),
      board_(comm.rank(), plan.ranks()) {
  list_tensors(layer_of);
  const std::vector<Route> routes = routes_of(plan);
  pushes_->connect(routes);
  answers_->connect(routes);
  for (int r = 0; r < plan.ranks() && plan.request.bf16_transport; ++r) {
    wire_.push_back(make_bf16_transport(pushes_->for_threads(), Device::kCpu));
    wire_.back()->connect(routes);
  }
  for (int b = 0; b < static_cast<int>(plan.buckets.size()); ++b) {
    if (updates_share(plan, rank())) ranges_.push_back(range_of(b));
    answered_.emplace_back(static_cast<size_t>(plan.ranks()));
  }
}

std::vector<int> ParameterServer::servers() const {
  std::vector<int> all;
  for (int step = 1; step < ranks(); ++step)
    if (const int other = (rank() + step) % ranks(); updates_share(plan_, other)) all.push_back(other);
  return all;
}

Slice ParameterServer::share_of(int bucket, int server) const {
  return even_share(plan_, plan_.buckets[static_cast<size_t>(bucket)], server);
}

// Creates the range, and maps its elements to the parameters.
std::unique_ptr<WeightRange> ParameterServer::range_of(int bucket) {
  const Slice mine = share_of(bucket, rank());
  std::vector<std::pair<ParamPart, int64_t>> parts;  // a part, and its first element in the range
  int64_t first = 0;
  for (const ParamPart& part : share(bucket)) {
    if (part.elements.size() > 0) parts.emplace_back(part, first + part.elements.begin - mine.begin);
    first += aligned_elements(part.param->shape().elements());
  }
  const auto update = [this, parts](const ServedUpdate& now) {
    std::vector<ParamPart> updated;
    for (const auto& [part, at] : parts) {
      const Shape shape{part.elements.size()};
      updated.push_back({part.param, part.elements, now.gradient.part(at, shape), now.weights.part(at, shape)});
    }
    PushedFor pushed = now.pushed;
    pushed.weights *= pushed.share, pushed.biases *= pushed.share;
    update_(updated, pushed, 1 / pushed.share, now.updates);
  };
  const auto answer = [this, bucket](int worker, const Tensor& weights) {
    Event& sent = answered_[static_cast<size_t>(bucket)][static_cast<size_t>(worker)];
    // The worker's push, which this answers, has arrived after the last answer. So this does not wait while the range
    // is locked.
    if (!has_ended(sent)) return;  // the worker's thread will notice
    sent = answers_->for_threads().send(weights, worker, Event());
    sent_by_server_.fetch_add(weights.bytes());
  };
  const int own = computes() ? rank() : kNoWorker;
  return std::make_unique<WeightRange>(plan_.computing_ranks(), own, rules_, weight_sum_type(plan_.request.on),
                                       group(bucket).values.part(mine.begin, {mine.size()}), update, answer);
}

ParameterServer::~ParameterServer() {
  if (threads_.empty()) return;
  try {
    board_.rethrow_failure();
    if (std::uncaught_exceptions() > exceptions_) throw Aborted("this rank has failed");
    PushHeader goodbye;
    goodbye.sums[kRowSum] = kGoodbye;
    send_header(goodbye);
  } catch (...) {
    give_up();
  }
  threads_.join();
}

void ParameterServer::begin() {
  if (!threads_.empty()) return;
  for (auto& range : ranges_) range->begin(updates_);
  threads_.start(
      ranks() - 1, "thread of a parameter server", "use fewer --workers",
      [this](int other) { serve(other < rank() ? other : other + 1); }, [this] { give_up(); });
}

// A rank that finishes its part of a step pushes, which asks for the next weights; so the thread waits for messages
// only.
void ParameterServer::serve(int worker) {
  set_team_size(1);
  const Profiler::Scope scope(nullptr, "gradients", Phase::kTransfer);
  Communicator& plain = pushes_->for_threads();
  try {
    while (true) {
      Tensor values({kPushHeaderBytes / 8}, DType::kF64);
      plain.receive(values, worker, Event()).wait();
      PushHeader header;
      std::memcpy(&header, values.raw(), kPushHeaderBytes);
      if (header.sums[kRowSum] == kGoodbye) return;
      if (take_word(worker, header)) continue;
      board_.note(worker, header.sums);
      for (int b = 0; plan_.computes(worker) && b < static_cast<int>(ranges_.size()); ++b) {
        range(b).push(worker, receive_gradient(worker, b), header.pushed);
      }
    }
  } catch (const PeerGone&) {
    forget(worker);
  } catch (...) {
    fail_with(std::current_exception());
  }
}

// Gradients that have arrived completely count, for each range separately.
void ParameterServer::forget(int worker) {
  for (auto& range : ranges_) range->forget(worker);
  board_.note_lost(worker);
}

Tensor ParameterServer::receive_gradient(int worker, int bucket) {
  Communicator& plain = pushes_->for_threads();
  Tensor gradient = range(bucket).memory();
  if (!filters(bucket)) {
    const bool rounded = !wire_.empty() && plan_.buckets[static_cast<size_t>(bucket)].trained;
    Communicator& from = rounded ? *wire_[static_cast<size_t>(worker)] : plain;
    from.receive(gradient, worker, Event()).wait();
    return gradient;
  }
  const PushMessage& message = messages_[static_cast<size_t>(bucket)];
  const Slice mine = share_of(bucket, rank());
  int64_t count = mine.size();
  if (plan_.request.options.server.filters.chooses()) {
    Tensor number({1}, DType::kI64);
    plain.receive(number, worker, Event()).wait();
    count = *number.data<int64_t>();
    OWT_CHECK(count >= 0 && count <= mine.size(), count, " of ", mine.size(), " entries are sent");
  }
  Tensor packed({message.bytes(mine, count)}, DType::kU8);
  if (packed.bytes() > 0) plain.receive(packed, worker, Event()).wait();
  message.unpack(packed, count, mine, gradient);
  return gradient;
}

void ParameterServer::send_header(const PushHeader& header) {
  const Tensor values = packed_header(header);
  waiting([&] {
    for (const Event& event : headers_sent_) static_cast<void>(has_ended(event));
    headers_sent_.clear();
    for (int step = 1; step < ranks(); ++step)
      headers_sent_.push_back(pushes_->send(values, (rank() + step) % ranks(), Event()));
  });
}

// When all ranks are here, all pushes have arrived, since each worker has received the answers to its own pushes.
std::optional<int64_t> ParameterServer::settle(const Stream& stream) {
  if (threads_.empty() || plan_.buckets.empty()) return updates_;
  if (rules_.synchronous() && pushes_to_itself()) {
    // Other ranks are answered with the weights in place, which this rank has received before them.
    waiting([&] {
      for (const std::vector<Event>& of_bucket : answered_)
        for (const Event& answer : of_bucket) static_cast<void>(has_ended(answer));
    });
    return updates_ = ranges_.front()->updates();
  }
  wait_for_all();
  for (auto& range : ranges_) range->settle();
  spread(*this, stream);
  return updates_;
}

void ParameterServer::take_values() {
  for (auto& range : ranges_) range->take_mine();
  wait_for_all();  // no worker may push before
}

void ParameterServer::wait_for_all() {
  waiting([&] { on_host::sum(comm_.unrounded(), std::vector{0.0}, Device::kCpu); });
}

// Sends the weights of the servers of `from`, which are these ranks' own servers. The weights are in place already; the
// number of updates is not.
void ParameterServer::spread(const ParameterServer& from, const Stream& stream) {
  Communicator& comm = comm_.unrounded();
  const int last = ranks() - 1;  // the last rank always serves
  waiting([&] {
    for (int b = 0; b < static_cast<int>(plan_.buckets.size()); ++b) spread(b, comm);
    const int64_t mine = rank() == last ? from.ranges_.front()->updates() : 0;
    updates_ = static_cast<int64_t>(on_host::sum(comm, std::vector{static_cast<double>(mine)}, Device::kCpu).front());
  });
  for (int b = 0; b < static_cast<int>(plan_.buckets.size()); ++b) {
    for (const ParamPart& part : share(b)) ++part.param->version;
    renew_copies(group(b), stream);
  }
}

std::vector<int> ParameterServer::meet() {
  if (threads_.empty()) return {};
  std::vector<int> without;
  if (rank() != 0) say(kMet, 0, 0);
  waiting([&] { without = board_.meet(); });
  for (int r = 1; rank() == 0 && r < ranks(); ++r) {
    for (const int gone : without) say(kWithout, gone, r);
    say(kMet, 0, r);
  }
  return without;
}

void ParameterServer::say(double word, int64_t number, int rank) {
  PushHeader header;
  header.sums[kRowSum] = word;
  header.pushed.weights = static_cast<double>(number);
  headers_sent_.push_back(pushes_->send(packed_header(header), rank, Event()));
}

// Returns true for a message of meet(), false for a message of a step.
bool ParameterServer::take_word(int worker, const PushHeader& header) {
  const double word = header.sums[kRowSum];
  if (word != kWithout && word != kMet) return false;
  if (word == kWithout)
    board_.note_without(static_cast<int>(header.pushed.weights));
  else
    board_.note_met(worker);
  return true;
}

int64_t ParameterServer::take(WeightSync& served_before, const Stream& stream) {
  auto& before = dynamic_cast<ParameterServer&>(served_before);
  OWT_CHECK(threads_.empty() && !pushes_to_itself());
  for (int b = 0; b < static_cast<int>(ranges_.size()); ++b) {
    before.range(b).settle();
    const Slice mine = share_of(b, rank()), theirs = before.share_of(b, before.rank());
    OWT_CHECK_EQ(mine.size(), theirs.size());
    group(b).values.part(mine.begin, {mine.size()}).copy_from(before.group(b).values.part(theirs.begin, {mine.size()}));
  }
  spread(before, stream);
  return updates_;
}

// Sends every server's shard of the weights to all ranks.
void ParameterServer::spread(int bucket, Communicator& comm) {
  Tensor& values = group(bucket).values;
  const auto part = [&](int server) {
    const Slice its = share_of(bucket, server);
    return values.part(its.begin, {its.size()});
  };
  if (pushes_to_itself()) return comm.all_gather(part(rank()), values, Event()).wait();
  for (int server = plan_.computing_ranks(); server < ranks(); ++server) {
    Tensor its = part(server);
    comm.broadcast(its, its, server, Event()).wait();
  }
}

std::map<int64_t, int64_t> ParameterServer::staleness() const {
  std::map<int64_t, int64_t> all;
  for (const auto& range : ranges_)
    for (const auto& [updates, gradients] : range->staleness()) all[updates] += gradients;
  return all;
}

// The rank's own thread gets the failure wherever it waits.
void ParameterServer::fail_with(const std::exception_ptr& failure) {
  board_.fail_with(failure);
  give_up();
}

void ParameterServer::give_up() {
  for (auto& range : ranges_) range->give_up();
  pushes_->give_up();
  answers_->give_up();
}

}  // namespace owt

#include "src/mirror/mirror.h"

#include <algorithm>
#include <utility>

#include "src/comm/on_host.h"
#include "src/system/check.h"
#include "src/system/joined_threads.h"

namespace owt {
namespace {

// The size of a renewal's messages. One is in transit at a time, and a message of a step waits for no more than that.
constexpr int64_t kMessageElements = 1 << 18;

int64_t elements_of(const std::vector<MirroredPart>& parts) {
  int64_t elements = 0;
  for (const MirroredPart& part : parts) elements += part.region.elements();
  return elements;
}

// The indexes of the parts that exactly one rank has.
std::vector<std::vector<size_t>> single_parts(const std::vector<std::vector<MirroredPart>>& parts_of_ranks) {
  std::map<std::pair<std::string, Region>, int> holders;
  for (const auto& parts : parts_of_ranks)
    for (const MirroredPart& part : parts) ++holders[{part.name, part.region}];
  std::vector<std::vector<size_t>> single(parts_of_ranks.size());
  for (size_t rank = 0; rank < single.size(); ++rank)
    for (size_t i = 0; i < parts_of_ranks[rank].size(); ++i) {
      const MirroredPart& part = parts_of_ranks[rank][i];
      if (part.region.elements() > 0 && holders[{part.name, part.region}] == 1) single[rank].push_back(i);
    }
  return single;
}

// The part of a tensor in one dimension that starts at `first`; may be empty.
Tensor message_at(const Tensor& all, int64_t first) {
  const int64_t left = all.defined() ? all.elements() - first : 0;
  return left > 0 ? all.part(first, {std::min(left, kMessageElements)}) : Tensor();
}

}  // namespace

void Mirror::renew(const Mirrored& of, const RunState& state) {
  enter(of);
  complete();
  const std::vector<MirroredTensor> tensors = mirrored_tensors(of);
  if (renewals_ == 0)
    lay_out(tensors);
  else
    copies_.resize(std::min<size_t>(copies_.size(), renewals_ == 1 ? 1 : 2));
  copies_.insert(copies_.begin(), make_copy(tensors, state));
  ++renewals_;
  start_passing();
}

// The memory of the older copies is used again, now that all ranks have the newest one.
Mirror::StepCopy Mirror::make_copy(const std::vector<MirroredTensor>& tensors, const RunState& state) {
  StepCopy copy{state, {layout_.own, {}}, {layout_.of_previous, {}}};
  if (renewals_ > 1) {
    copy.own.memory = copies_.back().own.memory;
    copy.of_previous.memory = copies_.back().of_previous.memory;
    copies_.pop_back();
  } else {
    on_all_hosts(messages_->comm(), [&] {
      for (StoredParts* stored : {&copy.own, &copy.of_previous})
        stored->memory = Tensor::shared_with(messages_->device(), {elements_of(stored->parts)}, DType::kF32);
    });
  }
  int64_t first = 0;
  for (const size_t i : layout_.order) {
    const Tensor& values = tensors[i].values;
    if (values.elements() > 0) copy.own.memory.part(first, {values.elements()}).copy_from(values);
    first += values.elements();
  }
  OWT_CHECK_EQ(first, copy.own.memory.elements(), "a mirror copies the same tensors each time");
  return copy;
}

void Mirror::enter(const Mirrored& of) {
  const Groups& groups = of.step.groups();
  if (!messages_) messages_.emplace(groups.world(), groups.device());
}

void Mirror::lay_out(const std::vector<MirroredTensor>& tensors) {
  const std::vector<std::vector<MirroredPart>> parts =
      gather_parts(messages_->comm(), parts_of(tensors), messages_->device());
  const std::vector<std::vector<size_t>> single = single_parts(parts);
  const size_t rank = static_cast<size_t>(messages_->rank()), ranks = parts.size();
  const size_t previous = (rank + ranks - 1) % ranks;
  layout_ = {single[rank], {}, {}};
  for (size_t i = 0; i < tensors.size(); ++i)
    if (std::ranges::find(single[rank], i) == single[rank].end()) layout_.order.push_back(i);
  for (const size_t i : layout_.order) layout_.own.push_back(parts[rank][i]);
  if (ranks == 1) return;
  for (const size_t i : single[rank]) layout_.sent += parts[rank][i].region.elements();
  for (const size_t i : single[previous]) layout_.of_previous.push_back(parts[previous][i]);
  std::vector<Route> routes;
  for (size_t from = 0; from < ranks; ++from)
    if (!single[from].empty()) routes.push_back({static_cast<int>(from), static_cast<int>((from + 1) % ranks)});
  messages_->connect(routes, kMessageElements);
}

// On a GPU nothing may be allocated while messages are in transit, so no step runs beside them.
void Mirror::start_passing() {
  passing_.sent = copies_.front().own.memory.part(0, {layout_.sent});
  passing_.received = std::exchange(copies_.front().of_previous.memory, {});
  passing_.failure = nullptr;
  passing_.over.store(false);
  const auto work = [this] {
    try {
      pass_on();
    } catch (...) {
      passing_.failure = std::current_exception();
    }
    passing_.over.store(true);
  };
  if (messages_->device() == Device::kCpu) {
    passing_.thread = start_thread("the thread that mirrors the weights", "", work);
    return;
  }
  work();
  end_passing();
  if (passing_.failure) std::rethrow_exception(passing_.failure);
  messages_->comm().host_barrier();
}

void Mirror::pass_on() {
  const int rank = messages_->rank(), ranks = messages_->ranks();
  const int64_t most = std::max(passing_.sent.elements(), passing_.received.elements());
  for (int64_t first = 0; first < most; first += kMessageElements)
    messages_->exchange(message_at(passing_.sent, first), (rank + 1) % ranks, message_at(passing_.received, first),
                        (rank + ranks - 1) % ranks);
}

void Mirror::end_passing() {
  if (passing_.thread.joinable()) passing_.thread.join();
  passing_.sent = Tensor();
  Tensor received = std::exchange(passing_.received, {});
  // If messages are still in transit, the communicator keeps their memory.
  if (!passing_.failure && received.defined()) copies_.front().of_previous.memory = received;
}

void Mirror::complete() {
  if (renewals_ == 0) return;
  end_passing();
  if (passing_.failure) std::rethrow_exception(passing_.failure);
  on_host::sum(messages_->comm(), std::vector<double>{0}, messages_->device());
}

void Mirror::leave_world() {
  if (!passing_.over.load()) messages_->comm().give_up();
  end_passing();
  passing_.failure = nullptr;
  renewals_ = 0;
  messages_.reset();
}

// Visits the parts of tensors with their memory.
template <class Visit>
void Mirror::for_each_stored(const StepCopy& copy, const Visit& visit) {
  for (const StoredParts* stored : {&copy.own, &copy.of_previous}) {
    if (!stored->memory.defined()) continue;
    int64_t first = 0;
    for (const MirroredPart& part : stored->parts) {
      visit(part, stored->memory.part(first, {part.region.elements()}));
      first += part.region.elements();
    }
  }
}

std::optional<RunState> Mirror::agree(Communicator& comm, Device device) {
  leave_world();
  agreed_on_.clear();
  std::vector<MirroredPart> mine;  // the names begin with the step
  for (const StepCopy& copy : copies_)
    for_each_stored(copy, [&](const MirroredPart& part, const Tensor&) {
      mine.push_back({concat(copy.state.step, ' ', part.name), part.elements, part.region});
    });
  const std::vector<std::vector<MirroredPart>> all = gather_parts(comm, mine, device);
  struct OfStep {
    std::map<std::string, RegionsOfRanks> held;
    std::map<std::string, ElementRanges> missing;
    size_t first_rank;
  };
  std::map<int64_t, OfStep> steps;
  for (size_t rank = 0; rank < all.size(); ++rank)
    for (const MirroredPart& part : all[rank]) {
      const size_t space = part.name.find(' ');
      const std::string name = part.name.substr(space + 1);
      OfStep& step = steps.try_emplace(std::stoll(part.name), OfStep{{}, {}, rank}).first->second;
      const Slice whole{0, part.elements};
      RegionsOfRanks& held = step.held.try_emplace(name, all.size()).first->second;
      held[rank].push_back(part.region);
      ElementRanges& missing = step.missing.try_emplace(name, ElementRanges{whole}).first->second;
      missing = without(missing, part.region.within(whole));
    }
  std::erase_if(steps, [](const auto& step) {
    return std::ranges::any_of(step.second.missing, [](const auto& tensor) { return count_of(tensor.second) > 0; });
  });
  if (steps.empty()) {
    copies_.clear();
    return {};
  }
  const auto& [newest, of_step] = *steps.rbegin();
  std::erase_if(copies_, [&, step = newest](const StepCopy& copy) { return copy.state.step != step; });
  const bool tells = static_cast<size_t>(comm.rank()) == of_step.first_rank;
  const std::string text =
      on_host::gather(comm, tells ? copies_.front().state.to_json() : std::string(), device)[of_step.first_rank];
  agreed_on_ = of_step.held;
  return RunState::from_json(text, "the mirror");
}

int64_t Mirror::restore(const Mirrored& into) {
  enter(into);
  HeldCopies held{agreed_on_, {}};
  for (const StepCopy& copy : copies_)
    for_each_stored(copy,
                    [&](const MirroredPart& part, const Tensor& memory) { held.memory[part.name].push_back(memory); });
  std::vector<MirroredTensor> tensors = mirrored_tensors(into);
  return restore_tensors(*messages_, held, tensors);
}

int64_t Mirror::bytes() const {
  int64_t bytes = passing_.received.defined() ? passing_.received.bytes() : 0;
  for (const StepCopy& copy : copies_)
    for (const StoredParts* stored : {&copy.own, &copy.of_previous})
      if (stored->memory.defined()) bytes += stored->memory.bytes();
  return bytes;
}

}  // namespace owt

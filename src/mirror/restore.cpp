#include "src/mirror/restore.h"

#include <algorithm>

#include "src/system/check.h"

namespace owt {
namespace {

// Elements of a tensor that go from one rank to another, or stay on a rank.
struct RestoreMessage {
  int from, to;
  size_t region;  // index among the regions of `from`
  ElementRanges elements;
};

// Some whole rows of a tensor.
struct RestoreWindow {
  size_t tensor;
  Slice rows, elements;
  std::vector<RestoreMessage> messages;
};

// All ranks handle the messages in the order of these lists, so that none waits for a rank that waits for it.
std::vector<RestoreMessage> messages_for(const RegionsOfRanks& held, const std::vector<Region>& wanted,
                                         const Slice& window, const std::string& name) {
  std::vector<RestoreMessage> messages;
  for (size_t to = 0; to < wanted.size(); ++to) {
    ElementRanges missing = wanted[to].within(window);
    const auto take_from = [&](size_t from) {
      for (size_t region = 0; region < held[from].size() && !missing.empty(); ++region) {
        const ElementRanges common = common_part(missing, held[from][region].within(window));
        if (common.empty()) continue;
        messages.push_back({static_cast<int>(from), static_cast<int>(to), region, common});
        missing = without(missing, common);
      }
    };
    take_from(to);
    for (size_t from = 0; from < held.size(); ++from) take_from(from);
    OWT_CHECK(missing.empty(), "no rank has a copy of all of '", name, "'");
  }
  return messages;
}

std::vector<RestoreWindow> windows_of(const HeldCopies& held, const std::vector<MirroredTensor>& tensors,
                                      const std::vector<std::vector<MirroredPart>>& parts_of_ranks) {
  std::vector<RestoreWindow> windows;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto& [part, whole, values, weight] = tensors[i];
    const auto regions = held.regions.find(part.name);
    OWT_CHECK(regions != held.regions.end(), "no rank has a copy of '", part.name, "'");
    std::vector<Region> wanted;
    for (const auto& parts : parts_of_ranks) wanted.push_back(parts[i].region);
    const int64_t width = whole.row_elements();
    for (const Slice& rows : pieces_of(whole, {0, whole.rows()})) {
      const Slice elements{rows.begin * width, rows.end * width};
      windows.push_back({i, rows, elements, messages_for(regions->second, wanted, elements, part.name)});
    }
  }
  return windows;
}

void connect(HostMessages& messages, const std::vector<RestoreWindow>& windows) {
  std::map<std::pair<int, int>, Route> routes;
  int64_t most = 0;
  for (const RestoreWindow& window : windows)
    for (const RestoreMessage& message : window.messages) {
      if (message.from == message.to) continue;
      routes[{message.from, message.to}] = {message.from, message.to};
      most = std::max(most, count_of(message.elements));
    }
  std::vector<Route> all;
  for (const auto& [ends, route] : routes) all.push_back(route);
  messages.connect(all, most);
}

// Copies elements of a tensor between a region's memory, which begins with element number `first` of the region, and
// memory where they follow each other.
void pack(const Tensor& memory, const Region& region, const ElementRanges& elements, Tensor& packed) {
  float* at = packed.data();
  for (const Slice& range : elements) at = std::copy_n(memory.data() + region.offset_of(range.begin), range.size(), at);
}

void unpack(const Tensor& packed, const ElementRanges& elements, const Region& region, int64_t first, Tensor& memory) {
  const float* at = packed.data();
  for (const Slice& range : elements) {
    std::copy_n(at, range.size(), memory.data() + region.offset_of(range.begin) - first);
    at += range.size();
  }
}

int64_t restore_window(HostMessages& messages, const HeldCopies& held, const RestoreWindow& window,
                       MirroredTensor& tensor) {
  const int rank = messages.rank();
  const Region& mine = tensor.part.region;
  const ElementRanges wanted = mine.within(window.elements);
  // A rank's elements of some rows follow each other in its memory.
  const int64_t first = wanted.empty() ? 0 : mine.offset_of(wanted.front().begin);
  Tensor values({count_of(wanted)});
  int64_t received = 0;
  for (const auto& [from, to, region, elements] : window.messages) {
    if (from != rank && to != rank) continue;
    Tensor message({count_of(elements)});
    if (from == rank)
      pack(held.memory.at(tensor.part.name)[region],
           held.regions.at(tensor.part.name)[static_cast<size_t>(rank)][region], elements, message);
    if (from != to) messages.exchange(from == rank ? message : Tensor(), to, to == rank ? message : Tensor(), from);
    if (from != to && to == rank) received += message.bytes();
    if (to == rank) unpack(message, elements, mine, first, values);
  }
  tensor.set(window.rows, values);
  return received;
}

}  // namespace

int64_t restore_tensors(HostMessages& messages, const HeldCopies& held, std::vector<MirroredTensor>& tensors) {
  const std::vector<RestoreWindow> windows =
      windows_of(held, tensors, gather_parts(messages.comm(), parts_of(tensors), messages.device()));
  connect(messages, windows);
  int64_t received = 0;
  for (const RestoreWindow& window : windows)
    received += restore_window(messages, held, window, tensors[window.tensor]);
  messages.comm().host_barrier();
  return received;
}

}  // namespace owt

#include "tests/simulated_gpu/collective_ops.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "tests/simulated_gpu/elements.h"

namespace simulated_gpu {
namespace {

struct Bf16 {
  uint16_t bits;
  Bf16() = default;
  explicit Bf16(float value) : bits(float_to_bf16(value)) {}
  operator float() const { return bf16_to_float(bits); }
};

template <class T>
T combine(T a, T b, ncclRedOp_t op) {
  switch (op) {
    case ncclProd:
      return T(a * b);
    case ncclMax:
      return a < b ? b : a;
    case ncclMin:
      return b < a ? b : a;
    default:  // ncclSum, ncclAvg
      return T(a + b);
  }
}

template <class T>
std::vector<std::byte> reduce_as(const std::vector<CollectiveCall>& calls, size_t count) {
  std::vector<std::byte> bytes(count * sizeof(T));
  T* to = reinterpret_cast<T*>(bytes.data());
  for (size_t i = 0; i < count; ++i) {
    T value = static_cast<const T*>(calls[0].send)[i];
    for (size_t rank = 1; rank < calls.size(); ++rank)
      value = combine(value, static_cast<const T*>(calls[rank].send)[i], calls[0].op);
    if (calls[0].op == ncclAvg) value = T(value / static_cast<T>(calls.size()));
    to[i] = value;
  }
  return bytes;
}

std::vector<std::byte> reduce(const std::vector<CollectiveCall>& calls, size_t count) {
  switch (calls[0].type) {
    case ncclFloat32:
      return reduce_as<float>(calls, count);
    case ncclFloat64:
      return reduce_as<double>(calls, count);
    case ncclBfloat16:
      return reduce_as<Bf16>(calls, count);
    case ncclInt32:
      return reduce_as<int32_t>(calls, count);
    case ncclInt64:
      return reduce_as<int64_t>(calls, count);
    default:
      return reduce_as<uint8_t>(calls, count);
  }
}

bool reduces(Collective kind) {
  return kind == Collective::kAllReduce || kind == Collective::kReduce || kind == Collective::kReduceScatter;
}

}  // namespace

size_t bytes_of(ncclDataType_t type) {
  switch (type) {
    case ncclUint8:
      return 1;
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclFloat32:
      return 4;
    case ncclInt64:
    case ncclFloat64:
      return 8;
    default:
      return 0;
  }
}

bool is_simulated(ncclRedOp_t op) { return op >= ncclSum && op <= ncclAvg; }

size_t sent_elements(const CollectiveCall& call, int rank, int ranks) {
  const bool many = call.kind == Collective::kReduceScatter || call.kind == Collective::kAllToAll ||
                    call.kind == Collective::kScatter;
  const bool root_only = call.kind == Collective::kBroadcast || call.kind == Collective::kScatter;
  if (root_only && rank != call.root) return 0;
  return call.count * (many ? static_cast<size_t>(ranks) : 1);
}

size_t received_elements(const CollectiveCall& call, int rank, int ranks) {
  const bool many =
      call.kind == Collective::kAllGather || call.kind == Collective::kAllToAll || call.kind == Collective::kGather;
  const bool root_only = call.kind == Collective::kReduce || call.kind == Collective::kGather;
  if (root_only && rank != call.root) return 0;
  return call.count * (many ? static_cast<size_t>(ranks) : 1);
}

void perform(const std::vector<CollectiveCall>& calls) {
  const CollectiveCall& first = calls[0];
  const auto ranks = static_cast<int>(calls.size());
  const size_t part = first.count * bytes_of(first.type);
  // Copies everything that is sent before anything is received, because buffers may be the same.
  std::vector<std::vector<std::byte>> sent;
  if (reduces(first.kind)) {
    sent.push_back(reduce(calls, sent_elements(first, 0, ranks)));
  } else {
    for (int rank = 0; rank < ranks; ++rank) {
      const auto& call = calls[static_cast<size_t>(rank)];
      const auto* from = static_cast<const std::byte*>(call.send);
      const size_t bytes = sent_elements(call, rank, ranks) * bytes_of(call.type);
      sent.emplace_back(bytes > 0 ? std::vector<std::byte>(from, from + bytes) : std::vector<std::byte>());
    }
  }
  const auto root = static_cast<size_t>(first.root);
  for (size_t rank = 0; rank < calls.size(); ++rank) {
    if (received_elements(first, static_cast<int>(rank), ranks) == 0) continue;
    auto* to = static_cast<std::byte*>(calls[rank].receive);
    switch (first.kind) {
      case Collective::kAllReduce:
      case Collective::kReduce:
        std::memcpy(to, sent[0].data(), part);
        break;
      case Collective::kReduceScatter:
        std::memcpy(to, sent[0].data() + rank * part, part);
        break;
      case Collective::kBroadcast:
        std::memcpy(to, sent[root].data(), part);
        break;
      case Collective::kScatter:
        std::memcpy(to, sent[root].data() + rank * part, part);
        break;
      case Collective::kAllGather:
      case Collective::kGather:
        for (size_t other = 0; other < calls.size(); ++other) std::memcpy(to + other * part, sent[other].data(), part);
        break;
      case Collective::kAllToAll:
        for (size_t other = 0; other < calls.size(); ++other)
          std::memcpy(to + other * part, sent[other].data() + rank * part, part);
        break;
    }
  }
}

}  // namespace simulated_gpu

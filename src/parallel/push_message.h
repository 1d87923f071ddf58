// A filtered gradient as bytes: what a worker sends to the server of a range of a bucket. Where filters choose, how
// many entries are sent goes ahead, as i64, and says how long the rest is:
//
//   f32 least, f32 most   of every tensor of the bucket, where values are fixed
//   which ones            nothing where all are sent; a bit for each entry of the range, or its number as u32 for each
//                         that is sent, whichever is less
//   the values            f32, or 1 or 2 bytes each; where filters do not choose, as many as the range has entries,
//                         those between the tensors last
//
// These are FilterSettings::message_bytes(). Numbers are in the order of the processor's bytes.
#pragma once

#include <span>
#include <vector>

#include "src/core/shape.h"
#include "src/core/tensor.h"
#include "src/parallel/push_filters.h"

namespace owt {

class PushMessage {
 public:
  // tensors: of the bucket, one behind the other, with what lies between them left out.
  PushMessage(const FilterSettings& settings, std::vector<Slice> tensors)
      : settings_(settings), tensors_(std::move(tensors)) {}

  const std::vector<Slice>& tensors() const { return tensors_; }
  // Of the range's; what lies between tensors counts where filters do not choose.
  int64_t count(std::span<const Filtered> of, Slice range) const;
  // Behind the number that goes ahead.
  int64_t bytes(Slice range, int64_t count) const;
  int64_t most_bytes(Slice range) const;  // whatever the count is

  // values: of the bucket, f32, as its filters have left them; of: each tensor's.
  Tensor packed(const Tensor& values, std::span<const Filtered> of, Slice range) const;
  // Entries that were not sent become 0. values: of the range.
  void unpack(const Tensor& message, int64_t count, Slice range, Tensor& values) const;

 private:
  template <class Visit>
  void visit(Slice range, const Visit& visit) const;

  FilterSettings settings_;
  std::vector<Slice> tensors_;
};

}  // namespace owt

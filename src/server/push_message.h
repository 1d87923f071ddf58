// The byte format of a filtered gradient, which a worker sends to the server of a range of a bucket. If filters choose
// entries, a separate message precedes it: the number of entries sent, as i64, which determines the length of the rest:
//
//   f32 least, f32 most   of every tensor of the bucket, for fixed-point values
//   which entries         empty if all are sent; else a bit for each entry of the range, or the place of each sent
//                         entry as u32, whichever is less
//   the values            f32, or 1 or 2 bytes each. If filters do not choose entries, as many as the range has;
//                         padding between tensors comes last
//
// The length is FilterSettings::message_bytes(). Numbers are in the byte order of the processor.
#pragma once

#include <span>
#include <vector>

#include "src/core/shape.h"
#include "src/core/tensor.h"
#include "src/server/push_filters.h"

namespace owt {

class PushMessage {
 public:
  // tensors: the tensors of the bucket in order, without the padding between them.
  PushMessage(const FilterSettings& settings, std::vector<Slice> tensors)
      : settings_(settings), tensors_(std::move(tensors)) {}

  const std::vector<Slice>& tensors() const { return tensors_; }
  // The number of entries of the range that are sent. Padding between tensors counts if filters do not choose entries.
  int64_t count(std::span<const Filtered> of, Slice range) const;
  // Bytes after the number of entries.
  int64_t bytes(Slice range, int64_t count) const;
  int64_t most_bytes(Slice range) const;  // for any count

  // values: of the bucket, f32, after the filters. of: the result for each tensor.
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

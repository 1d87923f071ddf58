#include "data/corrupt_records.h"

#include "src/core/log.h"

namespace owt {

void CorruptRecords::add(int64_t index, const CorruptRecord& error) {
  const std::lock_guard lock(mutex_);
  if (!met_.insert(index).second) return;
  const auto count = static_cast<int64_t>(met_.size());
  if (count > most_)
    fail(count, " damaged record(s) among the training images, at most ", most_,
         " allowed (data.max_corrupt); the last one: ", error.what());
  log_warn("damaged record {} of at most {}, replaced by the next image: {}", count, most_, error.what());
}

int64_t CorruptRecords::count() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(met_.size());
}

}  // namespace owt

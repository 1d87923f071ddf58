#include "data/corrupt_records.h"

#include "src/system/log.h"
#include "src/system/texts.h"

namespace owt {

void CorruptRecords::add(int64_t index, const CorruptRecord& error) {
  const std::lock_guard lock(mutex_);
  if (!met_.insert(index).second) return;
  check(std::ssize(met_), error.what());
  if (report_ == Report::kAtOnce)
    log_warn("damaged record {} of at most {}, replaced by the next image: {}", met_.size(), most_, error.what());
  else
    news_[index] = error.what();
}

int64_t CorruptRecords::count() const {
  const std::lock_guard lock(mutex_);
  return std::ssize(met_);
}

std::string CorruptRecords::news() {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> texts;
  for (const auto& [index, error] : news_) texts.insert(texts.end(), {std::to_string(index), error});
  news_.clear();
  return packed(texts);
}

void CorruptRecords::merge(const std::vector<std::string>& by_rank, bool reports) {
  const std::lock_guard lock(mutex_);
  for (size_t rank = 0; rank < by_rank.size(); ++rank) {
    const std::vector<std::string> texts = unpacked(by_rank[rank]);
    for (size_t i = 0; i + 1 < texts.size(); i += 2) {
      const int64_t index = std::stoll(texts[i]);
      met_.insert(index);
      if (!merged_.insert(index).second) continue;
      check(std::ssize(merged_), texts[i + 1]);
      if (reports)
        log_warn("damaged record {} of at most {}, met by rank {}, replaced by the next image: {}", merged_.size(),
                 most_, rank, texts[i + 1]);
    }
  }
}

void CorruptRecords::check(int64_t count, const std::string& last) const {
  if (count > most_)
    fail(count, " damaged record(s) among the training images, at most ", most_,
         " allowed (data.max_corrupt); the last one: ", last);
}

}  // namespace owt

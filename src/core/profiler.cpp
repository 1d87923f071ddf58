#include "src/core/profiler.h"

#include <algorithm>

#include "src/core/check.h"

namespace owt {
namespace {

double milliseconds(Profiler::Clock::duration d) { return std::chrono::duration<double, std::milli>(d).count(); }

}  // namespace

const char* name_of(Phase phase) {
  switch (phase) {
    case Phase::kForward:
      return "forward";
    case Phase::kBackward:
      return "backward";
    case Phase::kUpdate:
      return "update";
    case Phase::kLoss:
      return "loss";
    case Phase::kTransfer:
      return "transfer";
    case Phase::kData:
      return "data";
  }
  return "";
}

size_t Profiler::row(std::string_view name, Phase phase) {
  for (size_t i = 0; i < rows_.size(); ++i)
    if (rows_[i].phase == phase && rows_[i].name == name) return i;
  Row fresh{std::string(name), phase, {}, {}, {}};
  // Steps recorded before this row first appeared count as zero.
  const size_t steps = step_ms_.size() + (in_step_ ? 1 : 0);
  fresh.ms.resize(steps), fresh.transfer_ms.resize(steps), fresh.bytes.resize(steps);
  rows_.push_back(std::move(fresh));
  return rows_.size() - 1;
}

double Profiler::since_start(Clock::time_point t) const { return milliseconds(t - start_); }

void Profiler::begin_step() {
  if (!enabled_) return;
  in_step_ = true;
  step_begin_ = Clock::now();
  for (Row& r : rows_) r.ms.push_back(0), r.transfer_ms.push_back(0), r.bytes.push_back(0);
}

void Profiler::end_step() {
  if (!enabled_ || !in_step_) return;
  in_step_ = false;
  step_ms_.push_back(milliseconds(Clock::now() - step_begin_));
}

Profiler::Scope::Scope(Profiler* profiler, std::string_view name, Phase phase)
    : profiler_(profiler && profiler->enabled_ && profiler->in_step_ ? profiler : nullptr) {
  if (!profiler_) return;
  OWT_CHECK(profiler_->current_ == kNoRow, "scope '", std::string(name), "' inside another");
  row_ = profiler_->row(name, phase);
  profiler_->current_ = row_;
  begin_ = Clock::now();
}

Profiler::Scope::~Scope() {
  if (!profiler_) return;
  const auto end = Clock::now();
  profiler_->rows_[row_].ms.back() += milliseconds(end - begin_);
  profiler_->current_ = kNoRow;
  if (profiler_->keep_spans_)
    profiler_->spans_.push_back({row_, profiler_->since_start(begin_), profiler_->since_start(end),
                                 static_cast<int64_t>(profiler_->step_ms_.size())});
}

void Profiler::add_transfer(double ms, int64_t bytes) {
  if (!enabled_ || !in_step_ || current_ == kNoRow) return;
  rows_[current_].transfer_ms.back() += ms;
  rows_[current_].bytes.back() += bytes;
}

void Profiler::clear() {
  rows_.clear();
  step_ms_.clear();
  spans_.clear();
  in_step_ = false;
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const size_t middle = values.size() / 2;
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(middle), values.end());
  if (values.size() % 2 == 1) return values[middle];
  return (values[middle] + *std::max_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(middle))) / 2;
}

}  // namespace owt

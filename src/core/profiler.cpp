#include "src/core/profiler.h"

#include <algorithm>
#include <exception>

#include "src/core/dispatch.h"
#include "src/system/check.h"

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
  Row fresh{std::string(name), phase, {}, {}, {}, {}};
  // A row counts as zero in steps recorded before it first appeared.
  const size_t steps = step_ms_.size() + (in_step_ ? 1 : 0);
  fresh.ms.resize(steps), fresh.transfer_ms.resize(steps), fresh.own_ms.resize(steps), fresh.bytes.resize(steps);
  rows_.push_back(std::move(fresh));
  return rows_.size() - 1;
}

// Scopes in the order in which they were opened; scope i is between marks 2 i and 2 i + 1.
struct Profiler::Recording {
  std::unique_ptr<Marks> marks;
  std::vector<size_t> rows;
};

std::unique_ptr<Marks> make_marks(Cpu, const Stream&) { return nullptr; }

void Profiler::use_stream(const Stream& stream) {
  OWT_CHECK(!in_step_);
  stream_ = stream;
  const auto marks = [&] { return dispatch(stream.device(), [&](auto tag) { return make_marks(tag, stream); }); };
  step_marks_ = marks();
  eager_ = step_marks_ ? std::make_shared<Recording>(Recording{marks(), {}}) : nullptr;
}

void Profiler::begin_step() {
  if (!enabled_) return;
  in_step_ = true;
  step_begin_ = now_();
  for (Row& r : rows_) r.ms.push_back(0), r.transfer_ms.push_back(0), r.own_ms.push_back(0), r.bytes.push_back(0);
  if (!step_marks_) return;
  eager_->rows.clear();
  step_marks_->set(0);
}

void Profiler::end_step() {
  if (!enabled_ || !in_step_) return;
  if (step_marks_) {
    step_marks_->set(1);
    step_marks_->wait(1);
    step_ms_.push_back(step_marks_->ms(0, 1));
    resolve(*eager_);
    for (const auto& recording : replayed_) resolve(*recording);
    replayed_.clear();
    for (const LateTransfer& late : late_) rows_[late.row].transfer_ms.back() += late.end.ms_since(late.begin);
    late_.clear();
  } else {
    step_ms_.push_back(milliseconds(now_() - step_begin_));
  }
  in_step_ = false;
}

void Profiler::resolve(const Recording& recording) {
  for (size_t i = 0; i < recording.rows.size(); ++i) {
    rows_[recording.rows[i]].ms.back() += recording.marks->ms(2 * i, 2 * i + 1);
    if (keep_spans_) {
      // A recording has its own marks, which cannot be compared with the step's marks: its spans start at its first
      // mark.
      const double begin = recording.marks->ms(0, 2 * i);
      add_span(recording.rows[i], begin, begin + recording.marks->ms(2 * i, 2 * i + 1));
    }
  }
}

void Profiler::begin_recording() {
  if (!enabled_ || !step_marks_) return;
  recording_ = std::make_shared<Recording>();
  recording_->marks = dispatch(stream_.device(), [&](auto tag) { return make_marks(tag, stream_); });
}

std::shared_ptr<const Profiler::Recording> Profiler::end_recording() { return std::move(recording_); }

void Profiler::replayed(std::shared_ptr<const Recording> recording) {
  if (in_step_ && recording) replayed_.push_back(std::move(recording));
}

void Profiler::open(size_t row) {
  current_ = row;
  if (!step_marks_) {
    scope_begin_ = now_();
    return;
  }
  Recording& to = recording_ ? *recording_ : *eager_;
  to.marks->begin_range(concat(rows_[current_].name, " ", name_of(rows_[current_].phase)));
  to.marks->set(2 * to.rows.size());
  to.rows.push_back(current_);
}

void Profiler::close() {
  if (step_marks_) {
    Recording& to = recording_ ? *recording_ : *eager_;
    to.marks->set(2 * to.rows.size() - 1);
    to.marks->end_range();
  } else {
    const auto end = now_();
    rows_[current_].ms.back() += milliseconds(end - scope_begin_);
    if (keep_spans_) add_span(current_, milliseconds(scope_begin_ - step_begin_), milliseconds(end - step_begin_));
  }
  current_ = kNoRow;
}

void Profiler::add_span(size_t row, double begin_ms, double end_ms) {
  const double step = milliseconds(step_begin_ - start_);
  const auto index = static_cast<int64_t>(step_marks_ ? step_ms_.size() - 1 : step_ms_.size());
  spans_.push_back({row, step + begin_ms, step + end_ms, index});
}

Profiler::Scope::Scope(Profiler* profiler, std::string_view name, Phase phase)
    : profiler_(profiler && profiler->enabled_ && profiler->in_step_ ? profiler : nullptr),
      interrupted_(profiler_ ? profiler_->current_ : kNoRow),
      exceptions_(std::uncaught_exceptions()),
      working_(name, name_of(phase)) {
  if (!profiler_) return;
  if (interrupted_ != kNoRow) profiler_->close();
  profiler_->open(profiler_->row(name, phase));
}

Profiler::Scope::~Scope() noexcept(false) {
  if (!profiler_) return;
  if (std::uncaught_exceptions() != exceptions_) {
    profiler_->current_ = kNoRow;  // the step has failed; its times are not used
    return;
  }
  profiler_->close();
  if (interrupted_ != kNoRow) profiler_->open(interrupted_);
}

void Profiler::add_transfer(double ms, int64_t bytes, double own_ms) {
  if (!enabled_ || !in_step_ || current_ == kNoRow) return;
  rows_[current_].transfer_ms.back() += ms;
  rows_[current_].own_ms.back() += own_ms;
  rows_[current_].bytes.back() += bytes;
}

void Profiler::add_transfer(const Event& begin, const Event& end, int64_t bytes) {
  if (!enabled_ || !in_step_ || current_ == kNoRow) return;
  rows_[current_].bytes.back() += bytes;
  late_.push_back({current_, begin, end});
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

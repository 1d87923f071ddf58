// Where the time of a step goes. One Profiler per rank; used by that rank's host thread only.
//
// Scopes are leaves: they never nest, so that the rows of the table add up to the step. A disabled profiler costs one
// branch per scope. A row's figure for a step is the sum over its scopes in that step (rounds run a layer several times).
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace owt {

enum class Phase { kForward, kBackward, kUpdate, kLoss, kTransfer, kData };
const char* name_of(Phase phase);  // "forward", ...

class Profiler {
 public:
  using Clock = std::chrono::steady_clock;

  struct Row {
    std::string name;  // layer, transfer, ...
    Phase phase;
    // Per recorded step. Of a transfer `ms` is the host's time, exposed between the computations; `transfer_ms` that
    // of the collectives themselves and `bytes` what this rank sent in them.
    std::vector<double> ms, transfer_ms;
    std::vector<int64_t> bytes;
  };
  struct Span {
    size_t row;
    double begin_ms, end_ms;
    int64_t step;
  };  // since the profiler was made; for traces

  void enable(bool enabled) { enabled_ = enabled; }
  bool enabled() const { return enabled_; }
  void keep_spans(bool keep) { keep_spans_ = keep; }

  void begin_step();
  void end_step();

  class Scope {
   public:
    Scope(Profiler* profiler, std::string_view name, Phase phase);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Profiler* profiler_;
    size_t row_ = 0;
    Clock::time_point begin_;
  };

  // The communicator reports a collective to the scope it runs in (outside any scope: not shown in the table).
  void add_transfer(double ms, int64_t bytes);

  const std::vector<Row>& rows() const { return rows_; }
  const std::vector<double>& step_ms() const { return step_ms_; }
  const std::vector<Span>& spans() const { return spans_; }
  Clock::time_point start() const { return start_; }  // the zero of the spans
  void clear();                                       // forgets what was recorded, e.g. the first steps

 private:
  static constexpr size_t kNoRow = static_cast<size_t>(-1);
  size_t row(std::string_view name, Phase phase);
  double since_start(Clock::time_point t) const;

  bool enabled_ = false, keep_spans_ = false, in_step_ = false;
  Clock::time_point start_ = Clock::now(), step_begin_{};
  std::vector<Row> rows_;
  std::vector<double> step_ms_;
  std::vector<Span> spans_;
  size_t current_ = kNoRow;
};

double median(std::vector<double> values);  // of an empty list: 0

}  // namespace owt

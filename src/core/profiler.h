// Measures where the time of a step goes. There is one Profiler per rank; only that rank's host thread uses it.
//
// A scope inside another interrupts it, so that the rows of the table add up to the step. A disabled profiler costs one
// branch per scope. A row's value for a step is the sum over its scopes in that step (rounds run a layer several
// times). On a GPU a scope is timed on the device, between marks in the rank's stream, and the host waits at the end of
// a profiled step.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/core/stream.h"
#include "src/system/check.h"

namespace owt {

// Numbered points in the queue of a device. On a GPU, ranges for its profiling tools as well.
class Marks {
 public:
  virtual ~Marks() = default;
  virtual void set(size_t mark) = 0;                    // the current end of the queue; may be recorded into a graph
  virtual void wait(size_t mark) = 0;                   // blocks the host until the queue has passed it
  virtual double ms(size_t from, size_t to) const = 0;  // both passed
  virtual void begin_range(const std::string& name) = 0;
  virtual void end_range() = 0;
};

std::unique_ptr<Marks> make_marks(Cpu, const Stream& stream);  // null: the host's clock is sufficient
std::unique_ptr<Marks> make_marks(Cuda, const Stream& stream);

enum class Phase { kForward, kBackward, kUpdate, kLoss, kTransfer, kData };
const char* name_of(Phase phase);  // "forward", ...

class Profiler {
 public:
  using Clock = std::chrono::steady_clock;
  using Now = Clock::time_point (*)();

  // now: the host's clock, or a clock of tests.
  explicit Profiler(Now now = &Clock::now) : now_(now), start_(now()) {}

  struct Row {
    std::string name;  // layer, transfer, ...
    Phase phase;
    // Values per recorded step. For a transfer, `ms` is the time that computation does not hide, `transfer_ms` the time
    // of the collectives themselves, and `bytes` what this rank sent in them. For messages, `own_ms` is the time this
    // rank itself spent in their calls, for example to copy them.
    std::vector<double> ms, transfer_ms, own_ms;
    std::vector<int64_t> bytes;
  };
  struct Span {
    size_t row;
    double begin_ms, end_ms;
    int64_t step;
  };  // since the profiler was made; for traces

  void enable(bool enabled) { enabled_ = enabled; }
  bool enabled() const { return enabled_; }
  bool in_step() const { return in_step_; }  // a profiled one
  void keep_spans(bool keep) { keep_spans_ = keep; }

  // Times scopes in this stream from then on. Must not be called within a step.
  void use_stream(const Stream& stream);

  void begin_step();
  void end_step();

  // The scopes of work that was recorded into a graph, used for its replays.
  struct Recording;
  // Between begin_step and end_step: scopes after this call belong to the recording that end_recording returns.
  void begin_recording();
  std::shared_ptr<const Recording> end_recording();
  void replayed(std::shared_ptr<const Recording> recording);  // this step contains the recorded scopes

  static constexpr size_t kNoRow = static_cast<size_t>(-1);
  class Scope {
   public:
    Scope(Profiler* profiler, std::string_view name, Phase phase);
    ~Scope() noexcept(false);  // a device may report an error of the work
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Profiler* profiler_;
    size_t interrupted_;  // row of the enclosing scope, or kNoRow
    int exceptions_;      // exceptions in flight when it was opened
    Working working_;
  };

  // The communicator reports a collective to the scope it runs in (outside any scope: not shown in the table).
  void add_transfer(double ms, int64_t bytes, double own_ms = 0);
  // Reports a collective that may not be finished: its time is the time between the two events.
  void add_transfer(const Event& begin, const Event& end, int64_t bytes);

  const std::vector<Row>& rows() const { return rows_; }
  const std::vector<double>& step_ms() const { return step_ms_; }
  const std::vector<Span>& spans() const { return spans_; }
  Clock::time_point start() const { return start_; }  // the zero of the spans
  void clear();                                       // discards the recorded steps, e.g. the first ones

 private:
  struct LateTransfer {
    size_t row;
    Event begin, end;
  };

  size_t row(std::string_view name, Phase phase);
  void open(size_t row);
  void close();
  void add_span(size_t row, double begin_ms, double end_ms);  // since the step began
  void resolve(const Recording& recording);

  Now now_;
  bool enabled_ = false, keep_spans_ = false, in_step_ = false;
  Clock::time_point start_, step_begin_{}, scope_begin_{};
  std::vector<Row> rows_;
  std::vector<double> step_ms_;
  std::vector<Span> spans_;
  size_t current_ = kNoRow;

  // State for a GPU.
  Stream stream_;
  std::shared_ptr<Marks> step_marks_;                       // begin and end of the step; null on the CPU
  std::shared_ptr<Recording> eager_, recording_;            // made anew in every step; the one being recorded
  std::vector<std::shared_ptr<const Recording>> replayed_;  // in this step
  std::vector<LateTransfer> late_;
};

double median(std::vector<double> values);  // 0 for an empty list

}  // namespace owt

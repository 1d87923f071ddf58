// metrics.jsonl: one JSON object per line, for programs that plot runs. Values that are not finite are null.
//   {"kind":"start","step":0,"epoch":0.0,"steps_per_epoch":79,"facts":{"version":"0.1.0","command":"owt train ..."}}
//   ... before the first step of every process that trains the run: version, command, machine, number of workers
//   {"kind":"train","step":1,"epoch":0,"loss":2.3,"top1":0.1,"lr":0.01,"images_per_second":2500.0,"data_wait_ms":0.1,
//    "seconds":0.2}                                           ... since the first step of this process began
//   ... "loss", "top1" and "lr" are null under owt simulate --times-only
//   ... also "sampled_classes":104217 if the loss samples classes: the number that took part
//   ... also "gradient_norm":4.2 if gradients are clipped, or with LARS (gradient_norms.h)
//   ... also "corrupt_records":3 once there were any (data/corrupt_records.h)
//   {"kind":"eval","split":"test","step":500,"epoch":0,"loss":1.1,"top1":0.6,"top5":0.95,"images":10000,"seconds":9.1}
//   ... or "split":"val" (data/held_out.h)
//   ... also "ema":true if the weights were averages (weight_ema.h)
//   ... also "penalty":0.31,"zeros":0.82 under owt simulate with an L1 penalty: its part of the loss, and the fraction
//   of the weights that are 0
//   {"kind":"weights","step":500,"epoch":0,"mean":{"conv1.weight":0.02},"change":{"conv1.weight":1.9e-05},
//    "seconds":9.0}
//   ... at each evaluation, before it (weight_sizes.h); without "change" if there was no update before
//   {"kind":"bottleneck","step":64,"text":"step 18.6 ms: 16 % conv2 backward; ...","seconds":2.1}
//   ... once per process, about its timed steps (bottleneck.h)
//   {"kind":"world","step":120,"workers":3,"text":"rank 2 on node3 (process 4711) was lost: its process has ended",
//    "repeated":7,"seconds":9.1}
//   ... when the run continues with another set of workers: steps after this one are theirs
//   {"kind":"simulation","step":790,"updates":3160,"dropped":0,
//    "workers":[{"tasks":790,"computing":0.6,"on_the_way":0.3,"bytes_out":460000.0,"bytes_in":460000.0}],
//    "staleness":{"0":79,"3":3081},"bytes_to_servers":1840000,"bytes_to_workers":1840000,
//    "each_server":{"bytes_out":920000.0,"bytes_in":920000.0},"seconds":9.2}
//   ... without "each_server" if workers serve; without servers "bytes_between_workers" replaces the byte counts
//   ... at the end of owt simulate (virtual_run.h), where all seconds are virtual: fractions of the workers' time, and
//   the number of gradients by staleness
//   {"kind":"end","step":790,"state":"finished","seconds":9.2}
//   ... "finished", "stopped" by a signal, or "diverged"; missing if the process ended in another way
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "data/dataset.h"
#include "src/files/event_file.h"
#include "src/files/growing_file.h"
#include "src/train/weight_sizes.h"

namespace owt {

struct StartRecord {
  int64_t step = 0;  // updates done before
  double epoch = 0;  // epochs done before, with a fraction
  int64_t steps_per_epoch = 0;
  std::vector<std::pair<std::string, std::string>> facts{};
};

struct TrainRecord {
  int64_t step = 0;   // updates done
  int64_t epoch = 0;  // epoch of the step, from 0
  double loss = 0;    // mean over the rows of the step
  double top1 = 0;    // fraction of the step's rows
  double lr = 0;
  double images_per_second = 0;
  double data_wait_ms = 0;      // per step
  int64_t corrupt_records = 0;  // found by this process so far
  std::optional<double> gradient_norm{};
  std::optional<int64_t> sampled_classes{};
  double seconds = 0;  // since the first step of this process began
};

// The L1 penalty's part of the loss, and the fraction of penalised weights that are 0.
struct L1Penalty {
  double loss = 0, zeros = 0;
};

struct EvalRecord {
  Split split = Split::kTest;
  int64_t step = 0, epoch = 0;  // trained so far
  double loss = 0;              // mean over the images
  double top1 = 0, top5 = 0;    // fractions
  int64_t images = 0;
  bool ema = false;    // averaged weights were evaluated
  double seconds = 0;  // see TrainRecord
  std::optional<L1Penalty> penalty{};
};

struct WeightsRecord {
  int64_t step = 0, epoch = 0;  // see EvalRecord
  std::vector<WeightSize> sizes{};
  double seconds = 0;
};

struct BottleneckRecord {
  int64_t step = 0;
  std::string text{};
  double seconds = 0;
};

// The run continues with another set of workers.
struct WorldRecord {
  int64_t step = 0;      // updates done; the run continues from here
  int64_t workers = 0;   // from now on
  std::string text{};    // what changed, for people
  int64_t repeated = 0;  // steps that are computed again; 0 after a change in order
  double seconds = 0;    // see TrainRecord
};

// Bytes that a link has carried.
struct LinkBytes {
  double out = 0, in = 0;
};

struct SimulationRecord {
  struct SimulatedWorker {
    int64_t tasks = 0;
    double computing = 0, on_the_way = 0;  // fractions of its time; the rest is waiting for other workers
    LinkBytes link{};
  };
  int64_t step = 0, updates = 0, dropped = 0;
  std::vector<SimulatedWorker> workers{};
  std::vector<std::pair<int64_t, int64_t>> staleness{};  // staleness in updates, number of gradients
  int64_t bytes_to_servers = 0, bytes_to_workers = 0, bytes_between_workers = 0;
  std::optional<LinkBytes> each_server{};  // unset: workers serve, or there are no servers
  double seconds = 0;
};

struct EndRecord {
  int64_t step = 0;
  std::string state{};
  double seconds = 0;
};

class MetricsLog {
 public:
  // Appends to `path`; each line also goes to `events`, if given. Throws Error if the file cannot be written.
  explicit MetricsLog(const std::string& path, std::unique_ptr<EventFile> events = nullptr);

  // The system has the line when this returns. On a full disk it waits in memory for the next write.
  void write(const StartRecord& record);
  void write(const TrainRecord& record);
  void write(const EvalRecord& record);
  void write(const WeightsRecord& record);
  void write(const BottleneckRecord& record);
  void write(const WorldRecord& record);
  void write(const SimulationRecord& record);
  void write(const EndRecord& record);
  bool is_complete() const;  // no line is waiting, in `events` either
  const std::string& path() const { return file_.path(); }

 private:
  void write_line(const std::string& line);

  GrowingFile file_;
  std::unique_ptr<EventFile> events_;
};

// Call this before a run resumes after `step`, with its last evaluation after `evaluated_step`. It drops lines of later
// steps and evaluations, and lines that a crash left incomplete. The file is replaced atomically; it may be missing.
// Throws Error with file, line and value if a record's step is not an integer >= 0, and does not change the file then.
void drop_metrics_after(const std::string& path, int64_t step, int64_t evaluated_step);
// Throws Error for a line that drop_metrics_after() would refuse; changes nothing.
void check_metrics(const std::string& path);

}  // namespace owt

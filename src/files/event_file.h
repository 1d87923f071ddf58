// The content of metrics.jsonl (metrics.h) for TensorBoard: a file in the run's folder,
// events.out.tfevents.NNNNNNNN.owt.
//
//   scalars  loss/train, top1/train; loss/test, top1/test, top5/test (or /validation); the other numbers of a line of
//            kind train under their own names: lr, images_per_second, data_wait_ms, epoch, gradient_norm,
//            corrupt_records; weight_mean/NAME, weight_change/NAME and weight_ratio/NAME (change / mean)
//   texts    recipe; start, the facts of every process
//
// The file always agrees with metrics.jsonl, even after a run was resumed from an earlier checkpoint, or if the option
// was switched on later. Each process begins a file of its own with all lines that metrics.jsonl has kept. The new file
// revokes what an open TensorBoard has read in earlier ones. The latest of these is then empty, and the others are
// removed.
//
// Format: records of a length, its CRC, an Event in protobuf's encoding, and its CRC (in TensorFlow
// core/util/event.proto, core/framework/summary.proto and core/lib/io/record_writer.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "src/files/growing_file.h"

namespace owt {

class EventFile {
 public:
  // Writes the existing lines of `metrics`. Throws Error if the folder cannot be written, or is full.
  EventFile(const std::string& folder, const std::string& metrics, const std::string& recipe);

  // line: a line that metrics.jsonl has received, without its end. Throws Error on a full disk.
  void take(const std::string& line);
  bool is_complete() const { return file_.is_complete(); }  // no record is waiting

 private:
  std::string records_of(const std::string& line);

  GrowingFile file_;
  double began_ = 0, newest_ = 0;  // seconds since 1970: start of the latest process, time of the latest line
};

// CRC-32C (Castagnoli; RFC 3720, appendix B.4).
uint32_t crc32c(std::string_view bytes);
// Wraps an event as a record of the file.
std::string event_record(std::string_view event);

}  // namespace owt

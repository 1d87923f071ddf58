// The decoder of training photographs on a GPU, and the measurement that chooses it.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include "src/system/check.h"

namespace owt {

enum class Decoder { kCpu, kGpu, kAuto };  // kAuto: measured
constexpr std::array<const char*, 3> kDecoderNames{"cpu", "gpu", "auto"};
inline const char* name_of(Decoder decoder) { return kDecoderNames[static_cast<size_t>(decoder)]; }
inline Decoder decoder_named(const std::string& name) {
  const auto found = std::find(kDecoderNames.begin(), kDecoderNames.end(), name);
  OWT_CHECK(found != kDecoderNames.end(), name);
  return static_cast<Decoder>(found - kDecoderNames.begin());
}

// Times whole steps of the run with either decoder in turn, and keeps the one with the shorter steps. A loader's images
// per second alone do not suffice: on the CPU, decoding costs nothing while it is faster than the steps; on the GPU, it
// takes time from them. Blocks of steps alternate. All ranks see the same numbers of steps, so they switch together.
class DecoderTrial {
 public:
  static constexpr int64_t kBefore = 20;   // steps that are not timed, since algorithms are chosen in them
  static constexpr int64_t kBlock = 20;    // steps of a block
  static constexpr int64_t kUntimed = 10;  // its first steps, whose batches were made during the previous block
  static constexpr int64_t kBlocks = 4;    // CPU, GPU, CPU, GPU
  static constexpr int64_t kSteps = kBefore + kBlocks * kBlock;
  static constexpr int64_t kAhead = 16;  // batches that may be begun before their step

  // why_not: why the GPU cannot decode here; empty: it can.
  explicit DecoderTrial(std::string why_not) : why_not_(std::move(why_not)) {}

  const std::string& why_not() const { return why_not_; }
  // Whether the GPU decodes the batch of this step. Any thread may call it.
  bool on_gpu(int64_t step) const {
    if (step >= kSteps + kAhead || chosen_ == Decoder::kCpu) return chosen_ == Decoder::kGpu;
    return step >= kBefore && step < kSteps && (step - kBefore) / kBlock % 2 == 1;
  }
  // Before the batch of each step is handed out, at this time in seconds.
  void begin_step(double now) {
    const int64_t since = begun_++ - kBefore;
    if (since > 0 && since % kBlock == 0 && since <= kBlocks * kBlock) {
      double& best = step_s_[static_cast<size_t>((since / kBlock - 1) % 2)];
      best = std::min(best, (now - block_began_) / static_cast<double>(kBlock - kUntimed));
    }
    if (since >= 0 && since % kBlock == kUntimed) block_began_ = now;
  }
  // Whether all blocks are timed and choose() was not called yet: true from the same step on, on every rank.
  bool awaits_choice() const { return begun_ > kSteps && !chosen(); }
  Decoder faster() const { return step_s_[1] < step_s_[0] ? Decoder::kGpu : Decoder::kCpu; }
  // The same on all ranks. kGpu applies to steps from kSteps + kAhead on.
  void choose(Decoder decoder) { chosen_ = decoder; }
  bool chosen() const { return chosen_ != Decoder::kAuto; }
  double step_s(Decoder decoder) const { return step_s_[static_cast<size_t>(decoder)]; }

 private:
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  std::string why_not_;
  std::atomic<Decoder> chosen_{Decoder::kAuto};
  int64_t begun_ = 0;
  double block_began_ = 0;
  std::array<double, 2> step_s_{kNever, kNever};  // the faster block of each decoder
};

}  // namespace owt

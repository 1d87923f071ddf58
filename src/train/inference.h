// A trained network on one device, without a loss: what `owt predict` and `owt extract` run.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "src/comm/communicator.h"
#include "src/net/net.h"
#include "src/parallel/rank_model.h"
#include "src/train/settings.h"

namespace owt {

// The same recipe for one rank, which has the whole network.
Settings for_one_rank(Settings settings);

class Inference {
 public:
  // The layers of a recipe for_one_rank() up to and with `last` (empty: all), with the weights of a safetensors file.
  // Layers after `last` do not run, so that none of them takes the place of its output. By the calling thread and its
  // team. Throws Error where there is no such layer, with the nearest name, and as load_weights() does.
  Inference(const Settings& settings, const std::string& weights, const std::string& last = {});

  const Plan& plan() const { return plan_; }
  const Shape& in() const { return model_->front().in(); }  // of one row: H x W x C
  Shape out() const { return model_->front().out(); }       // of one row: H x W x C, or F
  const Stream& stream() const { return stream_; }          // where images are to be ready

  // images: rows x in(), f32 or as activations are there, on either device. Returns rows x out(), f32, on the host,
  // valid until the next run. Throws Error where a value is not finite.
  Tensor run(const Tensor& images);

 private:
  Tape& tape(int64_t rows);

  Compute on_;
  std::string weights_, last_;
  Plan plan_;
  std::unique_ptr<RankModel> model_;
  Stream stream_;
  std::optional<Tape> tape_;  // of the last run: there are as many numbers of rows as there are batches of photos
  int64_t tape_rows_ = 0;
};

}  // namespace owt

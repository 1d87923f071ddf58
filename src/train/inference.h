// A trained network on one device, without a loss, for `owt predict` and `owt extract`.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "src/comm/communicator.h"
#include "src/net/net.h"
#include "src/plan/rank_model.h"
#include "src/recipe/settings.h"

namespace owt {

// Converts a recipe to a single rank with the whole network.
Settings for_one_rank(Settings settings);

class Inference {
 public:
  // The layers of a for_one_rank() recipe up to and including `last` (empty: all), with the weights of a safetensors
  // file. Later layers do not run, so they cannot overwrite its output. Computes with the calling thread and its team.
  // Throws Error if there is no such layer, with the nearest name, and as load_weights() does.
  Inference(const Settings& settings, const std::string& weights, const std::string& last = {});

  const Plan& plan() const { return plan_; }
  const Net& net() const { return model_->front(); }
  const Shape& in() const { return model_->front().in(); }  // shape of a row: H x W x C
  Shape out() const { return model_->front().out(); }       // shape of a row: H x W x C, or F
  const Stream& stream() const { return stream_; }          // images must be ready on it

  // images: rows x in(), f32 or the type of activations, on either device. Returns rows x out(), f32, on the host,
  // valid until the next run. Throws Error if a value is not finite.
  Tensor run(const Tensor& images);

 private:
  Tape& tape(int64_t rows);

  Compute on_;
  std::string weights_, last_;
  Plan plan_;
  std::unique_ptr<RankModel> model_;
  Stream stream_;
  std::optional<Tape> tape_;  // for the rows of the last run only: photo batches may have many different sizes
  int64_t tape_rows_ = 0;
};

}  // namespace owt

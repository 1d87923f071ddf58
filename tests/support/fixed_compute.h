// A compute model for tests: the test sets the time of each layer, which is multiplied by rows and part.
#pragma once

#include <vector>

#include "src/predict/compute_model.h"

namespace owt {

class FixedCompute : public ComputeModel {
 public:
  struct Layer {
    double forward = 0, backward = 0;  // seconds per row
    double update = 0;                 // seconds
  };
  explicit FixedCompute(std::vector<Layer> layers, double loss = 0, double rest = 0)
      : layers_(std::move(layers)), loss_(loss), rest_(rest) {}

  double forward(size_t i, double rows, double part) const override { return layers_.at(i).forward * rows * part; }
  double backward(size_t i, double rows, double part) const override { return layers_.at(i).backward * rows * part; }
  double update(size_t i, double part) const override { return layers_.at(i).update * part; }
  double loss(double rows) const override { return loss_ * rows; }
  double rest() const override { return rest_; }
  std::string text() const override { return "fixed"; }

 private:
  std::vector<Layer> layers_;
  double loss_, rest_;
};

}  // namespace owt

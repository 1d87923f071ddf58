// Makes convolutions use a given algorithm, independent of measurements on this machine.
#pragma once

#include "layers/conv_cpu/conv_algorithm.h"

namespace owt {

// Convolutions that are bound while it lives use this algorithm if it can compute them.
class UsingConvAlgorithm {
 public:
  explicit UsingConvAlgorithm(ConvAlgorithm mode) { ConvChoices::process().set_mode(mode); }
  ~UsingConvAlgorithm() { ConvChoices::process().set_mode(before_); }

 private:
  ConvAlgorithm before_ = ConvChoices::process().mode();
};

}  // namespace owt

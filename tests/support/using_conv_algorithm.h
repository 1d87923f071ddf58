// Convolutions by a given algorithm, whatever a race on this machine would find the fastest.
#pragma once

#include "layers/conv_algorithm.h"

namespace owt {

// Convolutions bound while it lives use this algorithm where it can compute them.
class UsingConvAlgorithm {
 public:
  explicit UsingConvAlgorithm(ConvAlgorithm mode) { ConvChoices::process().set_mode(mode); }
  ~UsingConvAlgorithm() { ConvChoices::process().set_mode(before_); }

 private:
  ConvAlgorithm before_ = ConvChoices::process().mode();
};

}  // namespace owt

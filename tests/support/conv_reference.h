// A convolution by its definition (layers/conv.h), in double precision.
#pragma once

#include <vector>

#include "layers/conv.h"

namespace owt {

struct ConvReference {
  ConvGeometry g;
  int64_t rows;

  std::vector<double> y(const std::vector<float>& x, const std::vector<float>& weight,
                        const std::vector<float>& bias) const;
  std::vector<double> dx(const std::vector<float>& dy, const std::vector<float>& weight) const;
  std::vector<double> dw(const std::vector<float>& x, const std::vector<float>& dy) const;
  std::vector<double> db(const std::vector<float>& dy) const;
};

double relative_error(const std::vector<float>& found,
                      const std::vector<double>& exact);  // ||found - exact|| / ||exact||

}  // namespace owt

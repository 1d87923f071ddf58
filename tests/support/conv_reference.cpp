#include "tests/support/conv_reference.h"

#include <cmath>
#include <limits>

namespace owt {
namespace {

// Calls visit(o, i, k) for every product x[i] * weight[k] of output o.
template <class Visit>
void for_products(const ConvReference& conv, const Visit& visit) {
  const ConvGeometry& g = conv.g;
  const int64_t per_group = g.in_c / g.groups, out_per_group = g.out_c / g.groups;
  for (int64_t n = 0; n < conv.rows; ++n)
    for (int64_t i = 0; i < g.out_h; ++i)
      for (int64_t j = 0; j < g.out_w; ++j)
        for (int64_t o = 0; o < g.out_c; ++o)
          for (int64_t u = 0; u < g.kernel_h; ++u)
            for (int64_t v = 0; v < g.kernel_w; ++v) {
              const int64_t h = i * g.stride_h - g.top + u * g.dilation_h,
                            w = j * g.stride_w - g.left + v * g.dilation_w;
              if (h < 0 || h >= g.in_h || w < 0 || w >= g.in_w) continue;
              for (int64_t c = 0; c < per_group; ++c)
                visit(((n * g.out_h + i) * g.out_w + j) * g.out_c + o,
                      ((n * g.in_h + h) * g.in_w + w) * g.in_c + o / out_per_group * per_group + c,
                      ((o * g.kernel_h + u) * g.kernel_w + v) * per_group + c);
            }
}

}  // namespace

std::vector<double> ConvReference::y(const std::vector<float>& x, const std::vector<float>& weight,
                                     const std::vector<float>& bias) const {
  std::vector<double> y(static_cast<size_t>(rows * g.out_h * g.out_w * g.out_c));
  for (size_t k = 0; k < y.size(); ++k) y[k] = bias.empty() ? 0 : bias[k % bias.size()];
  for_products(*this,
               [&](int64_t o, int64_t i, int64_t k) { y[size_t(o)] += double(x[size_t(i)]) * weight[size_t(k)]; });
  return y;
}

std::vector<double> ConvReference::dx(const std::vector<float>& dy, const std::vector<float>& weight) const {
  std::vector<double> dx(static_cast<size_t>(rows * g.in_h * g.in_w * g.in_c));
  for_products(*this,
               [&](int64_t o, int64_t i, int64_t k) { dx[size_t(i)] += double(dy[size_t(o)]) * weight[size_t(k)]; });
  return dx;
}

std::vector<double> ConvReference::dw(const std::vector<float>& x, const std::vector<float>& dy) const {
  std::vector<double> dw(static_cast<size_t>(g.out_c * g.kernel_h * g.kernel_w * g.in_c / g.groups));
  for_products(*this, [&](int64_t o, int64_t i, int64_t k) { dw[size_t(k)] += double(dy[size_t(o)]) * x[size_t(i)]; });
  return dw;
}

std::vector<double> ConvReference::db(const std::vector<float>& dy) const {
  std::vector<double> db(static_cast<size_t>(g.out_c));
  for (size_t k = 0; k < dy.size(); ++k) db[k % db.size()] += dy[k];
  return db;
}

double relative_error(const std::vector<float>& found, const std::vector<double>& exact) {
  if (found.size() != exact.size()) return std::numeric_limits<double>::infinity();
  double difference = 0, norm = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    difference += (found[i] - exact[i]) * (found[i] - exact[i]);
    norm += exact[i] * exact[i];
  }
  return std::sqrt(difference / norm);
}

}  // namespace owt

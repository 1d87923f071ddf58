// What a pass of a convolution takes on the CPU by each algorithm that can compute it: milliseconds, the least of all
// rounds, and GFLOP/s as if the products were summed one by one.
//
//   usage: conv_speed [THREADS [ROUNDS]]      (2, 7; build it with cmake --build build --target conv_speed)
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <limits>
#include <vector>

#include "layers/few_channel_conv.h"
#include "layers/onednn_conv.h"
#include "layers/winograd.h"
#include "src/core/bf16.h"
#include "src/core/cpu_level.h"
#include "src/core/threads.h"

namespace {

using namespace owt;

struct ConvLayer {
  const char* name;
  int64_t rows;
  ConvGeometry geometry;
};

const ConvLayer kLayers[] = {
    {"AlexNet conv1", 64, {224, 224, 3, 55, 55, 64, 11, 11, 4, 4, 2, 2, 2, 2, 1}},
    {"AlexNet conv2", 64, {27, 27, 64, 27, 27, 192, 5, 5, 1, 1, 2, 2, 2, 2, 1}},
    {"AlexNet conv3", 64, {13, 13, 192, 13, 13, 384, 3, 3, 1, 1, 1, 1, 1, 1, 1}},
    {"VGG conv1_1", 16, {224, 224, 3, 224, 224, 64, 3, 3, 1, 1, 1, 1, 1, 1, 1}},
    {"ResNet conv1", 32, {224, 224, 3, 112, 112, 64, 7, 7, 2, 2, 3, 3, 3, 3, 1}},
    {"cifar10_quick conv1", 128, {32, 32, 3, 32, 32, 32, 5, 5, 1, 1, 2, 2, 2, 2, 1}},
    {"cifar10_quick conv2", 128, {16, 16, 32, 16, 16, 32, 5, 5, 1, 1, 2, 2, 2, 2, 1}},
    {"cifar10_bn conv1_1", 128, {32, 32, 3, 32, 32, 32, 3, 3, 1, 1, 1, 1, 1, 1, 1}},
    {"cifar10_94 conv1", 256, {32, 32, 3, 31, 31, 24, 2, 2, 1, 1, 0, 0, 0, 0, 1}},
    {"LeNet conv1", 64, {28, 28, 1, 24, 24, 20, 5, 5, 1, 1, 0, 0, 0, 0, 1}},
};

struct Algorithm {
  const char* name;
  std::function<std::unique_ptr<ConvPass>(const ConvShape&, PassKind)> make;
};

const Algorithm kAlgorithms[] = {
    {"direct", make_onednn_conv},
    {"few-channels", make_few_channel_conv},
    {"winograd", [](const ConvShape& shape, PassKind kind) { return make_winograd(shape, kind, DType::kF32); }},
    {"winograd-bf16", [](const ConvShape& shape, PassKind kind) { return make_winograd(shape, kind, DType::kBF16); }},
};

Tensor values(const Shape& shape, DType type = DType::kF32) {
  Tensor tensor(shape);
  for (int64_t i = 0; i < tensor.elements(); ++i) tensor.data()[i] = static_cast<float>(i * 7 % 23 - 11) / 16;
  return type == DType::kBF16 ? to_bf16(tensor) : tensor;
}

// One pass of one layer by one algorithm, on tensors of its own.
class Trial {
 public:
  Trial(const Algorithm& algorithm, const ConvShape& shape, PassKind kind)
      : name_(algorithm.name), kind_(kind), pass_(algorithm.make(shape, kind)) {
    if (!pass_) return;
    const ConvGeometry& g = shape.geometry;
    x_ = values({shape.rows, g.in_h, g.in_w, g.in_c}, shape.images);
    y_ = values({shape.rows, g.out_h, g.out_w, g.out_c}, shape.images);
    weight_ = values({g.out_c, g.kernel_h, g.kernel_w, g.in_c});
    bias_ = values({g.out_c});
    packed_ = Tensor({static_cast<int64_t>(pass_->packed_bytes())}, DType::kU8);
  }

  void measure() {
    if (!pass_) return;
    const auto begin = std::chrono::steady_clock::now();
    run();
    const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - begin;
    least_ms_ = std::min(least_ms_, taken.count());
  }

  void print(double flops) const {
    if (pass_) std::printf("  %s %.3f ms (%.0f)", name_, least_ms_, flops / least_ms_ * 1e-6);
  }

 private:
  void run() {
    if (kind_ == PassKind::kBackwardWeights)
      return pass_->backward_weights(x_.raw(), y_.raw(), 0, weight_.data(), 0, bias_.data());
    pass_->pack(weight_.data(), packed_.raw());
    if (kind_ == PassKind::kForward)
      pass_->forward(x_.raw(), packed_.raw(), bias_.data(), y_.raw());
    else
      pass_->backward_data(y_.raw(), packed_.raw(), x_.raw());
  }

  const char* name_;
  PassKind kind_;
  std::unique_ptr<ConvPass> pass_;
  Tensor x_, y_, weight_, bias_, packed_;
  double least_ms_ = std::numeric_limits<double>::infinity();
};

void compare(const ConvLayer& layer, PassKind kind, DType images, int rounds) {
  const ConvShape shape{layer.geometry, layer.rows, true, images};
  std::vector<Trial> trials;
  for (const Algorithm& algorithm : kAlgorithms) trials.emplace_back(algorithm, shape, kind);
  for (int round = 0; round <= rounds; ++round)
    for (Trial& trial : trials) trial.measure();
  std::printf("%-20s %-17s %-5s", layer.name, name_of(kind), name_of(images));
  for (const Trial& trial : trials) trial.print(layer.geometry.flops(layer.rows));
  std::printf("\n");
  std::fflush(stdout);
}

}  // namespace

int main(int count, char** arguments) {
  set_team_size(count > 1 ? std::atoi(arguments[1]) : 2);
  const int rounds = count > 2 ? std::atoi(arguments[2]) : 7;
  for (const ConvLayer& layer : kLayers)
    for (const auto kind : {PassKind::kForward, PassKind::kBackwardData, PassKind::kBackwardWeights})
      for (const auto images : {DType::kF32, DType::kBF16})
        if ((images == DType::kF32 || cpu_level() >= CpuLevel::kBf16) &&
            (kind != PassKind::kBackwardData || layer.geometry.in_c > 4))  // nobody asks the first layer for it
          compare(layer, kind, images, rounds);
}

// What a pass of a convolution takes on the CPU by each algorithm that can compute it: milliseconds, the least of all
// rounds, and GFLOP/s as if the products were summed one by one.
//
//   usage: conv_speed [THREADS [ROUNDS]]      (2, 7; build it with cmake --build build --target conv_speed)
#include <cstdio>
#include <cstdlib>

#include "layers/conv_trial.h"
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

void compare(const ConvLayer& layer, PassKind kind, DType images, int rounds) {
  const ConvShape shape{layer.geometry, layer.rows, true, images};
  std::printf("%-20s %-17s %-5s", layer.name, name_of(kind), name_of(images));
  for (const ConvChoices::Measured& each : measure_conv(shape, kind, conv_candidates(shape, kind), rounds))
    std::printf("  %s %.3f ms (%.0f)", name_of(each.algorithm), each.ms,
                layer.geometry.flops(layer.rows) / each.ms * 1e-6);
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

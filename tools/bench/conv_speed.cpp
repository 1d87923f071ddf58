// Times a pass of a convolution on the CPU with each algorithm that supports it: milliseconds, the least of all rounds,
// and GFLOP/s as if every product were summed individually.
//
//   usage: conv_speed [THREADS [ROUNDS [NAME]]]      (2, 7, prefix of layer names; default: all layers)
// Build it with cmake --build build --target conv_speed.
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "layers/conv_cpu/conv_trial.h"
#include "src/core/threads.h"
#include "src/system/cpu_level.h"

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
    {"depthwise 32, 112", 16, {112, 112, 32, 112, 112, 32, 3, 3, 1, 1, 1, 1, 1, 1, 32}},
    {"depthwise 96, 112 /2", 16, {112, 112, 96, 56, 56, 96, 3, 3, 2, 2, 1, 1, 0, 0, 96}},
    {"depthwise 144, 56", 16, {56, 56, 144, 56, 56, 144, 3, 3, 1, 1, 1, 1, 1, 1, 144}},
    {"depthwise 128, 56 /2", 16, {56, 56, 128, 28, 28, 128, 3, 3, 2, 2, 1, 1, 0, 0, 128}},
    {"depthwise 256, 28", 16, {28, 28, 256, 28, 28, 256, 3, 3, 1, 1, 1, 1, 1, 1, 256}},
    {"depthwise 512, 14", 16, {14, 14, 512, 14, 14, 512, 3, 3, 1, 1, 1, 1, 1, 1, 512}},
    {"depthwise 384, 14", 16, {14, 14, 384, 14, 14, 384, 3, 3, 1, 1, 1, 1, 1, 1, 384}},
    {"depthwise 1024, 7", 16, {7, 7, 1024, 7, 7, 1024, 3, 3, 1, 1, 1, 1, 1, 1, 1024}},
    {"depthwise 672, 14 5x5", 16, {14, 14, 672, 14, 14, 672, 5, 5, 1, 1, 2, 2, 2, 2, 672}},
    {"depthwise 384, 14 7x7", 16, {14, 14, 384, 14, 14, 384, 7, 7, 1, 1, 3, 3, 3, 3, 384}},
};

void compare(const ConvLayer& layer, PassKind kind, DType images, int rounds) {
  const ConvShape shape{layer.geometry, layer.rows, true, images};
  std::printf("%-22s %-17s %-5s", layer.name, name_of(kind), name_of(images));
  for (const ConvChoices::Timing& each : measure_conv(shape, kind, conv_candidates(shape, kind), rounds))
    std::printf("  %s %.3f ms (%.0f)", name_of(each.algorithm), each.ms,
                layer.geometry.flops(layer.rows) / each.ms * 1e-6);
  std::printf("\n");
  std::fflush(stdout);
}

}  // namespace

int main(int count, char** arguments) {
  set_team_size(count > 1 ? std::atoi(arguments[1]) : 2);
  const int rounds = count > 2 ? std::atoi(arguments[2]) : 7;
  const std::string_view name = count > 3 ? arguments[3] : "";
  for (const ConvLayer& layer : kLayers)
    for (const auto kind : {PassKind::kForward, PassKind::kBackwardData, PassKind::kBackwardWeights})
      for (const auto images : {DType::kF32, DType::kBF16})
        if (std::string_view(layer.name).starts_with(name) &&
            (images == DType::kF32 || cpu_level() >= CpuLevel::kBf16) &&
            (kind != PassKind::kBackwardData || layer.geometry.in_c > 4))  // the first layer does not need it
          compare(layer, kind, images, rounds);
}

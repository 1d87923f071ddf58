// Times all layers of a model file together on the CPU, one after the other, on a batch in memory. Prints milliseconds
// of forward and of backward (gradients of input and weights), each the least of all passes. compare_layers.py reads
// the output.
//
//   usage: layer_speed MODEL ROWS PRECISION THREADS SECONDS
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "src/core/bf16.h"
#include "src/core/philox.h"
#include "src/core/threads.h"
#include "src/net/model.h"
#include "src/net/net.h"
#include "src/system/config.h"

namespace {

using namespace owt;
using Clock = std::chrono::steady_clock;

Tensor random_batch(const Shape& shape, DType dtype, uint64_t seed) {
  Tensor values(shape);
  const Philox random(seed, RandomStream::kTest);
  for (int64_t i = 0; i < values.elements(); ++i) values.data()[i] = random.normal(static_cast<uint64_t>(i));
  return dtype == DType::kBF16 ? to_bf16(values) : values;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 6) return std::fputs("usage: layer_speed MODEL ROWS PRECISION THREADS SECONDS\n", stderr), 2;
  Config config = Config::file(arguments[1]);
  const Model model = read_model(config);
  const int64_t rows = std::atoll(arguments[2]);
  const Compute on{Device::kCpu, precision_from(arguments[3])};
  set_team_size(std::atoi(arguments[4]));
  Net net(whole_layers(model), model.input);
  for (Param* param : net.params()) {
    param->allocate(on);
    param->initialize(1);
  }
  Tape tape(net, rows, on, nullptr);
  const Tensor x = random_batch(model.input.batch_of(rows), activation_type(on.precision), 1),
               dy = random_batch(net.out().batch_of(rows), activation_type(on.precision), 2);
  Tensor dx(x.shape(), x.dtype());
  const Stream stream;
  std::vector<int64_t> indexes(static_cast<size_t>(rows));
  Pass pass;
  pass.step_rows = rows;
  pass.rows = indexes;
  pass.stream = &stream;
  std::vector<double> forward, backward;
  const auto end = Clock::now() + std::chrono::duration<double>(std::atof(arguments[5]));
  const auto ms = [](Clock::time_point from, Clock::time_point to) {
    return std::chrono::duration<double, std::milli>(to - from).count();
  };
  for (int i = 0; i < 6 || Clock::now() < end; ++i) {
    const auto begin = Clock::now();
    tape.forward(pass, x);
    const auto between = Clock::now();
    for (Param* param : net.params()) param->grad_is_zero = true;
    tape.backward(pass, x, dy, &dx);
    if (i < 3) continue;  // warm caches and primitives first
    forward.push_back(ms(begin, between));
    backward.push_back(ms(between, Clock::now()));
  }
  std::printf("%.5f %.5f\n", *std::ranges::min_element(forward), *std::ranges::min_element(backward));
}

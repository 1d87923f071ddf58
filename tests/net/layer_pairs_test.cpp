// Layers that share memory (layers/base/in_place.h) give the same results as ops with separate memory, whichever layers
// follow each other: all pairs of types, and a sample of triples; in nets, in residual bodies and in branches.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "src/core/bf16.h"
#include "src/net/layer_types.h"
#include "src/system/check.h"
#include "tests/support/nets.h"
#include "tests/support/using_conv_algorithm.h"

namespace owt::layer_pairs_test {
namespace {

using Keys = std::vector<std::string>;

// They work in place, or with every element by itself, and take images and features.
const Keys kElementwise = {
    "type='relu'",
    "type='dropout' rate=0.4",
    "type='drop_path' rate=0.4",
    "type='activation' kind='sigmoid'",
    "type='activation' kind='tanh'",
    "type='activation' kind='gelu'",
    "type='activation' kind='silu'",
    "type='activation' kind='leaky' slope=0.3",
    "type='activation' kind='prelu'",
    "type='activation' kind='relu6'",
    "type='activation' kind='softplus'",
    "type='activation' kind='abs'",
    "type='activation' kind='square'",
    "type='activation' kind='hard_sigmoid'",
    "type='activation' kind='hard_swish'",
};
const Keys kOthers = {
    "type='conv' out=4 kernel=3 pad=1",
    "type='local' out=4 kernel=2",
    "type='dense' out=4",
    "type='cosine' out=4",
    "type='batch_norm'",
    "type='lrn' size=3 alpha=0.5",
    "type='layer_norm' eps=0.1",
    "type='max_pool' kernel=2 stride=1",
    "type='avg_pool' kernel=2 stride=1",
    "type='global_avg_pool'",
    "type='residual' relu=false body=[{name='t',type='activation',kind='tanh'},{name='d',type='dropout',rate=0.4}]",
    "type='branches' branches=[{layers=[{name='t',type='activation',kind='tanh'},{name='d',type='dropout',rate=0.4}]},"
    "{layers=[{name='r',type='relu'},{name='s',type='activation',kind='softplus'}]}]",
    "type='scale' body=[{name='p',type='global_avg_pool'},{name='d',type='dropout',rate=0.4},"
    "{name='s',type='activation',kind='sigmoid'}]",
};

Keys joined(const Keys& a, const Keys& b) {
  Keys all = a;
  all.insert(all.end(), b.begin(), b.end());
  return all;
}

TEST(LayerPairs, AreOfAllTypesOfLayers) {
  for (const LayerType& type : net_layer_types()) {
    const std::string wanted = concat("type='", type.type, "'");
    const Keys all = joined(kElementwise, kOthers);
    EXPECT_TRUE(std::any_of(all.begin(), all.end(), [&](const std::string& k) { return k.starts_with(wanted); }))
        << type.type;
  }
}

// The position of the layers.
enum class Place { kNet, kResidual, kBranches };

constexpr const char* kComposite = "block";

// layer_from()'s keys, named by their number, as a table within an array.
std::string table_of(const std::string& keys, size_t number) {
  std::string table = keys;
  std::replace(table.begin(), table.end(), ' ', ',');
  return concat("{name='l", number, "',", table, "}");
}

Net composite(Place place, const Keys& layers, const Shape& in, const Compute& on) {
  std::string body;
  for (size_t i = 0; i < layers.size(); ++i) body += (i > 0 ? "," : "") + table_of(layers[i], i);
  const std::string keys = place == Place::kResidual
                               ? concat("type='residual' relu=false body=[", body, "]")
                               : concat("type='branches' branches=[{layers=[", body, "]},{layers=[]}]");
  return net_of({concat("name='", kComposite, "' ", keys)}, in, on);
}

Net plain(Place place, const Keys& layers, const Shape& in, const Compute& on) {
  const std::string prefix = place == Place::kNet ? "l" : concat(kComposite, ".l");
  Keys named;
  for (size_t i = 0; i < layers.size(); ++i) named.push_back(concat("name='", prefix, i, "' ", layers[i]));
  return net_of(named, in, on);
}

// y, dx and the gradients of the parameters.
struct Outcome {
  std::vector<std::vector<float>> values;
};

std::vector<float> normal(const Shape& shape, float scale, std::mt19937& random) {
  std::normal_distribution<float> draw(0, scale);
  std::vector<float> values(static_cast<size_t>(shape.elements()));
  for (float& value : values) value = draw(random);
  return values;
}

void add_gradients(Net& net, Outcome& to) {
  for (const Param* param : net.params())
    if (param->role == ParamRole::kTrained) to.values.push_back(download(param->grad));
}

Tensor upload_on(const std::vector<float>& values, const Shape& shape, const Compute& on) {
  return upload(values, shape, on.device, activation_type(on.precision));
}

Outcome by_tape(Net& net, const std::vector<float>& x, const std::vector<float>& dy, int64_t rows, const Compute& on) {
  DevicePass pass(on.device, rows);
  Tape tape(net, rows, on, nullptr);
  const Shape in = net.in().batch_of(rows);
  const Tensor images = upload_on(x, in, on);
  Tensor dx(in, activation_type(on.precision), on.device);
  const Tensor y = tape.forward(pass.pass(), images);
  pass.stream().synchronize();
  Outcome found{{download(y)}};
  tape.backward(pass.pass(), images, upload_on(dy, net.out().batch_of(rows), on), &dx);
  pass.stream().synchronize();
  found.values.push_back(download(dx));
  add_gradients(net, found);
  return found;
}

// Runs every op with a separate output and gradient.
Outcome by_ops(Net& net, const std::vector<float>& x, const std::vector<float>& dy, int64_t rows, const Compute& on) {
  DevicePass pass(on.device, rows);
  std::vector<std::unique_ptr<Op>> ops;
  std::vector<Tensor> outputs{upload_on(x, net.in().batch_of(rows), on)};
  for (int64_t l = 0; l < net.size(); ++l) {
    const Tensor& in = outputs.back();
    ops.push_back(net.layer(l).bind(in.shape(), on));
    Tensor out(net.layer(l).out_shape(in.shape()), in.dtype(), on.device);
    pass.pass().scratch = scratch_for(*ops.back(), on.device);
    ops.back()->forward(pass.pass(), in, out);
    pass.stream().synchronize();
    outputs.push_back(out);
  }
  Outcome found{{download(outputs.back())}};
  Tensor gradient = upload_on(dy, outputs.back().shape(), on);
  for (size_t l = ops.size(); l-- > 0;) {
    Tensor below(outputs[l].shape(), gradient.dtype(), on.device);
    pass.pass().scratch = scratch_for(*ops[l], on.device);
    run_backward(*ops[l], pass.pass(), outputs[l], outputs[l + 1], gradient, &below);
    pass.stream().synchronize();
    gradient = below;
  }
  found.values.push_back(download(gradient));
  add_gradients(net, found);
  return found;
}

std::vector<float> added(std::vector<float> a, const std::vector<float>& b, const Compute& on) {
  for (size_t i = 0; i < a.size(); ++i) {
    a[i] += b[i];
    if (on.precision == Precision::kBf16) a[i] = from_bf16(to_bf16(a[i]));
  }
  return a;
}

// Columns [first, first + count) of rows of `width`.
std::vector<float> columns(const std::vector<float>& of, size_t width, size_t first, size_t count) {
  std::vector<float> some;
  for (size_t row = 0; row < of.size(); row += width)
    for (size_t i = first; i < first + count; ++i) some.push_back(of[row + i]);
  return some;
}

double norm_of_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
    size += std::pow(static_cast<double>(b[i]), 2);
  }
  return difference == 0 ? 0 : std::sqrt(difference / std::max(size, 1e-12));
}

class LayerPairs : public DeviceTest {
 protected:
  static constexpr int64_t kRows = 3;

  // Whether there is such a net; if so, checks its results.
  bool check(Place place, const Keys& layers, const Shape& in, Precision precision) const {
    const Compute on{device(), precision};
    std::optional<Net> shared, apart;
    try {
      shared = place == Place::kNet ? plain(place, layers, in, on) : composite(place, layers, in, on);
      apart = plain(place, layers, in, on);
    } catch (const Error&) {
      return false;  // such layers do not fit together
    }
    SCOPED_TRACE(trace(place, layers, precision));
    std::mt19937 random(7);
    std::vector<float> x = rounded(normal(in.batch_of(kRows), 3, random));
    const std::vector<float> dy = rounded(normal(shared->out().batch_of(kRows), 1, random));
    const Outcome found = by_tape(*shared, x, dy, kRows, on);
    expect_same(found, place == Place::kNet ? by_ops(*apart, x, dy, kRows, on) : beside_x(place, *apart, x, dy, on),
                tolerance(layers, precision));
    if (place == Place::kNet && device() == Device::kCpu && precision == Precision::kFp32)
      expect_slope(*shared, found, x, dy);
    return true;
  }

  static std::string trace(Place place, const Keys& layers, Precision precision) {
    std::string text = concat(name_of(precision), place == Place::kNet ? "" : ", inside a composite layer");
    for (const std::string& layer : layers) text += "\n  " + layer;
    return text;
  }

  // A residual's body, or the first of two branches, next to x.
  static Outcome beside_x(Place place, Net& body, const std::vector<float>& x, const std::vector<float>& dy,
                          const Compute& on) {
    const Shape in = body.in(), out = body.out();
    if (place == Place::kResidual) {
      Outcome wanted = by_ops(body, x, dy, kRows, on);
      wanted.values[0] = added(wanted.values[0], x, on);
      wanted.values[1] = added(wanted.values[1], dy, on);
      return wanted;
    }
    const auto of_x = static_cast<size_t>(in[in.rank() - 1]), of_body = static_cast<size_t>(out[out.rank() - 1]);
    Outcome wanted = by_ops(body, x, columns(dy, of_body + of_x, 0, of_body), kRows, on);
    wanted.values[1] = added(wanted.values[1], columns(dy, of_body + of_x, of_body, of_x), on);
    std::vector<float> both;
    for (size_t pixel = 0; pixel < x.size() / of_x; ++pixel) {
      for (size_t i = 0; i < of_body; ++i) both.push_back(wanted.values[0][pixel * of_body + i]);
      for (size_t i = 0; i < of_x; ++i) both.push_back(x[pixel * of_x + i]);
    }
    wanted.values[0] = both;
    return wanted;
  }

  // Rounds to values that bf16 represents.
  static std::vector<float> rounded(std::vector<float> values) {
    for (float& value : values) value = from_bf16(to_bf16(value));
    return values;
  }

  // The CPU runs the same ops. A GPU fuses several into one, which rounds elsewhere: in bf16 another of two pixels may
  // become the largest.
  double tolerance(const Keys& layers, Precision precision) const {
    if (device() == Device::kCpu) return 0;
    if (precision == Precision::kFp32) return 1e-4;
    const bool pools = std::any_of(layers.begin(), layers.end(),
                                   [](const std::string& layer) { return layer.find("max_pool") != layer.npos; });
    return pools ? 0.5 : 0.03;
  }

  static void expect_same(const Outcome& found, const Outcome& wanted, double tolerance) {
    ASSERT_EQ(found.values.size(), wanted.values.size());
    for (size_t i = 0; i < found.values.size(); ++i)
      EXPECT_LE(norm_of_difference(found.values[i], wanted.values[i]), tolerance)
          << (i == 0   ? "y"
              : i == 1 ? "dx"
                       : concat("gradient ", i - 2));
  }

  // Compares with a difference of the results of all ops over a small step along x and all parameters.
  static void expect_slope(Net& net, const Outcome& found, const std::vector<float>& x, const std::vector<float>& dy) {
    std::mt19937 random(8);
    std::vector<Param*> trained;
    for (Param* param : net.params())
      if (param->role == ParamRole::kTrained) trained.push_back(param);
    std::vector<std::vector<float>> start{x}, way{normal(net.in().batch_of(kRows), 1, random)};
    for (const Param* param : trained) {
      start.push_back(download(param->value));
      way.push_back(normal(param->shape(), 0.3f, random));
    }
    double slope = 0, size = 0;
    for (size_t p = 0; p < way.size(); ++p)
      for (size_t i = 0; i < way[p].size(); ++i) {
        const auto gradient = static_cast<double>(found.values[p + 1][i]), along = static_cast<double>(way[p][i]);
        slope += gradient * along;
        size += gradient * along * gradient * along;
      }
    const auto at = [&](float distance) {
      std::vector<std::vector<float>> moved = start;
      for (size_t p = 0; p < way.size(); ++p)
        for (size_t i = 0; i < way[p].size(); ++i) moved[p][i] += distance * way[p][i];
      for (size_t p = 0; p < trained.size(); ++p)
        trained[p]->set_value(upload(moved[p + 1], trained[p]->shape(), Device::kCpu));
      DevicePass pass(Device::kCpu, kRows);
      Tape tape(net, kRows, Device::kCpu, nullptr);
      const std::vector<float> y =
          download(tape.forward(pass.pass(), upload_on(moved[0], net.in().batch_of(kRows), {})));
      double sum = 0;
      for (size_t i = 0; i < y.size(); ++i) sum += static_cast<double>(y[i]) * static_cast<double>(dy[i]);
      return sum;
    };
    constexpr float kDistance = 1e-3f;
    const double numeric = (at(kDistance) - at(-kDistance)) / (2 * static_cast<double>(kDistance));
    EXPECT_NEAR(slope, numeric, 0.03 * std::sqrt(size) + 1e-3);
  }

  const UsingConvAlgorithm direct_{ConvAlgorithm::kDirect};
};
INSTANTIATE_TEST_SUITE_P(Devices, LayerPairs, ::testing::ValuesIn(devices()), device_name);

constexpr Precision kPrecisions[] = {Precision::kFp32, Precision::kBf16};

// A simulated GPU is slow: it has every pair once, in one precision and one place.
TEST_P(LayerPairs, OfFeaturesShareMemoryRightly) {
  int checked = 0, next = 0;
  for (const std::string& first : kElementwise)
    for (const std::string& second : kElementwise)
      for (const Precision precision : kPrecisions)
        for (const Place place : {Place::kNet, Place::kResidual, Place::kBranches})
          if (device() == Device::kCpu || next++ % 5 == 0)
            checked += check(place, {"type='dense' out=5", first, second}, {5}, precision);
  const auto pairs = static_cast<int>(kElementwise.size() * kElementwise.size());
  EXPECT_GE(checked, device() == Device::kCpu ? pairs * 2 * 3 : pairs);
}

TEST_P(LayerPairs, OfImagesShareMemoryRightly) {
  const Keys all = joined(kElementwise, kOthers);
  const auto elementwise = [&](const std::string& keys) { return &keys < &all[kElementwise.size()]; };
  int checked = 0, next = 0;
  for (const std::string& first : all)
    for (const std::string& second : all)
      for (const Precision precision : kPrecisions) {
        if (elementwise(first) && elementwise(second)) continue;
        if (device() == Device::kCpu || next++ % 3 == 0)
          checked += check(Place::kNet, {"type='conv' out=3 kernel=2", first, second, "type='dense' out=2"}, {5, 5, 2},
                           precision);
      }
  EXPECT_GT(checked, device() == Device::kCpu ? 500 : 150);
}

TEST_P(LayerPairs, OrThreesShareMemoryRightly) {
  std::mt19937 random(9);
  const auto drawn = [&] { return kElementwise[random() % kElementwise.size()]; };
  int checked = 0;
  const int samples = device() == Device::kCpu ? 100 : 20;
  for (int sample = 0; sample < samples; ++sample) {
    const Keys layers{"type='dense' out=5", drawn(), drawn(), drawn()};
    for (const Precision precision : kPrecisions)
      checked += check(static_cast<Place>(sample % 3), layers, {5}, precision);
  }
  EXPECT_EQ(checked, 2 * samples);
}

}  // namespace
}  // namespace owt::layer_pairs_test

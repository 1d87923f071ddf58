#include "tests/support/check_layer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "src/core/bf16.h"
#include "src/core/philox.h"
#include "tests/support/harness.h"
#include "tests/support/margins.h"
#include "tests/support/team_size.h"

namespace owt {
namespace {

using Values = std::vector<float>;

constexpr double kGap = 0.05;  // around 0, as a fraction of the range of inputs

Values random_values(int64_t count, uint64_t seed) {  // in [-1, 1)
  const Philox random(seed, RandomStream::kTest);
  Values values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = 2 * random.uniform(i) - 1;
  return values;
}

double dot(const Values& a, const Values& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

double root_mean_square(const Values& values) {
  return values.empty() ? 0 : std::sqrt(dot(values, values) / static_cast<double>(values.size()));
}

// Expects equal bits, or values within `exactness`; reports the first that differ.
void expect_same(const Values& found, const Values& wanted, double exactness, const std::string& what) {
  ASSERT_EQ(found.size(), wanted.size()) << what;
  int64_t wrong = 0;
  size_t first = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    const double limit = exactness * std::max(1.0, std::abs(static_cast<double>(wanted[i])));
    const double error = std::abs(static_cast<double>(found[i]) - static_cast<double>(wanted[i]));
    if (limit > 0) margins::record({__FILE__, __LINE__}, error, limit);
    if (!(error <= limit) && wrong++ == 0) first = i;
  }
  if (wrong > 0)
    ADD_FAILURE() << what << ": " << wrong << " of " << found.size() << " differ, the first at " << first << ": "
                  << found[first] << ", wanted " << wanted[first];
}

void expect_same_bits(const Values& found, const Values& wanted, const std::string& what) {
  expect_same(found, wanted, 0, what);
}

// Rounds to bf16 values, which tf32 and f32 represent too.
Values rounded(Values values) {
  for (float& value : values) value = from_bf16(to_bf16(value));
  return values;
}

void expect_near(const Values& found, const Values& wanted, double rounding, const std::string& what) {
  const double usual = root_mean_square(wanted);
  for (size_t i = 0; i < wanted.size(); ++i) {
    const double value = static_cast<double>(wanted[i]), limit = rounding * std::max(usual, std::abs(value));
    const double error = std::abs(static_cast<double>(found.at(i)) - value);
    margins::record({__FILE__, __LINE__}, std::max(0.0, error - limit / 2),
                    limit / 2);  // half is the result's rounding
    if (error <= limit) continue;
    ADD_FAILURE() << what << " at " << i << ": " << found[i] << ", wanted " << wanted[i] << ", usual " << usual;
    return;  // one is enough
  }
}

void expect_written(const Values& values, const std::string& what) {
  const auto bad = std::find_if(values.begin(), values.end(), [](float v) { return !std::isfinite(v); });
  if (bad != values.end()) ADD_FAILURE() << what << ": element " << bad - values.begin() << " is " << *bad;
}

// Columns `part` of rows of `columns` values, and their place in a whole.
Values columns_of(const Values& all, int64_t columns, Slice part) {
  Values some;
  for (size_t row = 0; row < all.size(); row += static_cast<size_t>(columns))
    some.insert(some.end(), all.begin() + static_cast<int64_t>(row) + part.begin,
                all.begin() + static_cast<int64_t>(row) + part.end);
  return some;
}

Shape with_channels(const Shape& batch, int64_t count) {
  return batch.rank() == 4 ? Shape{batch[0], batch[1], batch[2], count} : Shape{batch[0], count};
}

struct Results {
  Values y, dx;
  std::vector<Values> grads;  // gradients of all parameters
};

class Check {
 public:
  Check(const MakeLayer& make, const Shape& in, Device device, const LayerCheck& options)
      : make_(make),
        in_(in),
        device_(device),
        options_(options),
        x_(distinct_values(in.elements(), options.input_range, 11)),
        harness_(with_settings(make({}), in)) {
    dy_ = random_values(harness_->out_shape().elements(), 12);
  }

  void run() {
    whole_ = results(*harness_);
    expect_written(whole_.y, "y");
    expect_written(whole_.dx, "dx");
    for (size_t i = 0; i < params().size(); ++i) expect_written(whole_.grads[i], "gradient of " + params()[i]->name);
    expect_written(harness_->evaluate(x_), "y in evaluation");
    check_params();
    check_repetition();
    if (device_ == Device::kCpu)
      check_team_size();
    else
      check_against_cpu();
    check_precisions();
    check_accumulation();
    check_places();
    check_parts();
    check_numeric_gradients();
  }

 private:
  std::vector<Param*> params() { return harness_->layer().params(); }

  // A harness for rows that are every third row of a larger step.
  std::unique_ptr<Harness> with_settings(std::unique_ptr<Layer> layer, const Shape& in) const {
    return with_settings(std::move(layer), in, device_);
  }
  static std::unique_ptr<Harness> with_settings(std::unique_ptr<Layer> layer, const Shape& in, const Compute& on) {
    auto harness = std::make_unique<Harness>(std::move(layer), in, on);
    for (size_t i = 0; i < harness->rows().size(); ++i) harness->rows()[i] = 3 * static_cast<int64_t>(i) + 1;
    harness->pass().step_rows = 3 * in.rows();
    harness->pass().step = 5;
    return harness;
  }

  Results results(Harness& harness) const { return results(harness, x_, dy_); }
  static Results results(Harness& harness, const Values& x, const Values& dy) {
    harness.clear_grads();
    Results results;
    results.y = harness.forward(x);
    results.dx = harness.backward(dy);
    for (const Param* param : harness.layer().params()) results.grads.push_back(download(param->grad));
    return results;
  }

  void expect_equal(const Results& found, const Results& wanted, double exactness, const std::string& what) {
    expect_same(found.y, wanted.y, exactness, what + ": y");
    expect_same(found.dx, wanted.dx, exactness, what + ": dx");
    for (size_t i = 0; i < wanted.grads.size(); ++i)
      expect_same(found.grads[i], wanted.grads[i], exactness, what + ": gradient of " + params()[i]->name);
  }

  void check_params() {
    for (const Param* each : params()) {
      const Param& param = *each;
      SCOPED_TRACE(param.name);
      EXPECT_TRUE(param.name.starts_with(harness_->layer().name() + "."));
      EXPECT_EQ(param.file_shape.elements(), param.full_shape.elements());
      EXPECT_EQ(param.part, (Slice{0, param.full_shape.rows()}));
      const Values value = distinct_values(param.shape().elements(), 1, 13);
      Values file(value.size()), back(value.size());
      param.to_file_order(param.part.size(), value.data(), file.data());
      param.from_file_order(param.part.size(), file.data(), back.data());
      expect_same_bits(back, value, "file order and back");
    }
  }

  void check_repetition() {
    expect_equal(results(*harness_), whole_, 0, "the second time");
    const auto other = with_settings(make_({}), in_);
    expect_equal(results(*other), whole_, 0, "a second op");
  }

  void check_team_size() {
    for (const int threads : {1, 2}) {
      const TeamSize team(threads);
      const auto other = with_settings(make_({}), in_);
      expect_equal(results(*other), whole_, options_.exactness, std::to_string(threads) + " threads");
    }
  }

  void check_against_cpu() {
    const auto cpu = with_settings(make_({}), in_, Device::kCpu);
    expect_equal(whole_, results(*cpu), options_.exactness, "against the CPU");
    expect_same(harness_->evaluate(x_), cpu->evaluate(x_), options_.exactness, "in evaluation, against the CPU: y");
  }

  void check_precisions() {
    if (device_ == Device::kCuda) check_precision(Precision::kTf32, options_.rounding / 8);
    check_precision(Precision::kBf16, options_.rounding);
  }

  void check_precision(Precision precision, double rounding) {
    SCOPED_TRACE(name_of(precision));
    const auto found = with_settings(make_({}), in_, {device_, precision});
    const auto wanted = with_settings(make_({}), in_, Device::kCpu);
    for (Harness* harness : {found.get(), wanted.get()})
      for (Param* param : harness->layer().params())
        param->set_value(upload(rounded(download(param->value)), param->shape(), Device::kCpu));
    const Values x = rounded(x_), dy = rounded(dy_);
    const Results theirs = results(*wanted, x, dy), ours = results(*found, x, dy);
    const auto compare = [&](const Values& mine, const Values& exact, const std::string& what) {
      expect_written(mine, what);
      if (options_.rounds_once) expect_near(mine, exact, rounding, what);
    };
    compare(ours.y, theirs.y, "y");
    compare(ours.dx, theirs.dx, "dx");
    for (size_t i = 0; i < params().size(); ++i)
      compare(ours.grads[i], theirs.grads[i], "gradient of " + params()[i]->name);
    compare(found->evaluate(x), wanted->evaluate(x), "y in evaluation");
  }

  void check_accumulation() {
    harness_->clear_grads();
    harness_->forward(x_);
    harness_->backward_without_dx(dy_);
    for (size_t i = 0; i < params().size(); ++i) {
      EXPECT_FALSE(params()[i]->grad_is_zero) << params()[i]->name;
      expect_same(download(params()[i]->grad), whole_.grads[i], options_.exactness,
                  "without dx: gradient of " + params()[i]->name);
    }
    harness_->forward(x_);  // the state inside an op is valid for one backward only
    harness_->backward(dy_);
    for (size_t i = 0; i < params().size(); ++i) {
      Values twice = whole_.grads[i];
      for (float& value : twice) value *= 2;
      expect_same(download(params()[i]->grad), twice, options_.exactness,
                  "after a second backward: gradient of " + params()[i]->name);
    }
  }

  // Checks where y and dx may be stored, and what backward may read from there.
  void check_places() {
    Pass& pass = harness_->pass();
    const auto op = harness_->layer().bind(in_, device_);
    Tensor x = upload(x_, in_, device_), dy = upload(dy_, harness_->out_shape(), device_);
    if (const auto left = harness_->layer().in_place()) {
      ASSERT_EQ(harness_->out_shape(), in_) << "an in-place layer keeps the shape";
      op->forward(pass, x, x);
      pass.stream->synchronize();
      expect_same_bits(download(x), whole_.y, "in place: y");
      run_backward(*op, pass, x, x, dy, &dy);
      pass.stream->synchronize();
      expect_same_bits(download(dy), whole_.dx, "in place: dx");
      expect_left(*left);
      expect_dx_from(*op, upload(as_far_as_read(whole_.y), in_, device_));
      return;
    }
    Tensor y(harness_->out_shape(), DType::kF32, device_), dx(in_, DType::kF32, device_);
    op->forward(pass, x, y);
    pass.stream->synchronize();
    expect_same_bits(download(x), x_, "x after forward");
    y.copy_from(upload(as_far_as_read(whole_.y), y.shape(), device_));
    expect_dx_from(*op, y);
  }

  void expect_dx_from(Op& op, const Tensor& y) {
    Pass& pass = harness_->pass();
    const Tensor x = upload(x_, in_, device_), dy = upload(dy_, harness_->out_shape(), device_);
    Tensor dx(in_, DType::kF32, device_);
    run_backward(op, pass, x, y, dy, &dx);
    pass.stream->synchronize();
    expect_same_bits(download(dx), whole_.dx, "dx when y was overwritten but for what backward reads");
    expect_same_bits(download(dy), dy_, "dy after backward");
  }

  // y with only the content that the layer says backward reads.
  Values as_far_as_read(Values y) const {
    const Content read = harness_->layer().reads_of_output();
    for (float& value : y) {
      if (read == Content::kNothing) value = std::numeric_limits<float>::quiet_NaN();
      if (read == Content::kSigns) value = value > 0 ? 1e9f : -1e9f;
    }
    return y;
  }

  // Expects that y preserves of x what the layer says, for elements with a gradient.
  void expect_left(Content left) const {
    for (size_t i = 0; i < x_.size(); ++i) {
      if (whole_.dx[i] == 0) continue;
      if (left == Content::kSigns) {
        ASSERT_EQ(whole_.y[i] > 0, x_[i] > 0) << "the sign at " << i;
      }
      if (left == Content::kValues) {
        ASSERT_EQ(whole_.y[i], x_[i]) << "the value at " << i;
      }
    }
  }

  void check_parts() {
    const Columns columns = harness_->layer().columns();
    const bool keeps = columns == Columns::kKeeps;
    if (columns == Columns::kMixes) return;
    const Shape out = harness_->out_shape();
    const int64_t features = out[out.rank() - 1];
    Values dx_sum(x_.size(), 0.0f);
    for (int index = 0; index < 3; ++index) {
      const Slice part = split(features, 3, index);
      SCOPED_TRACE("features " + std::to_string(part.begin) + " to " + std::to_string(part.end));
      const Shape in = keeps ? with_channels(in_, part.size()) : in_;
      const auto harness = with_settings(make_(part), in);
      const Results found =
          results(*harness, keeps ? columns_of(x_, features, part) : x_, columns_of(dy_, features, part));
      expect_same(found.y, columns_of(whole_.y, features, part), options_.exactness, "part: y");
      expect_part_of_params(*harness, found, part);
      if (keeps)
        expect_same(found.dx, columns_of(whole_.dx, features, part), options_.exactness, "part: dx");
      else
        for (size_t i = 0; i < dx_sum.size(); ++i) dx_sum[i] += found.dx[i];
    }
    if (!keeps) expect_same(dx_sum, whole_.dx, options_.exactness, "sum of the parts' dx");
  }

  void expect_part_of_params(Harness& harness, const Results& found, Slice part) {
    const std::vector<Param*> some = harness.layer().params();
    ASSERT_EQ(some.size(), params().size());
    for (size_t i = 0; i < some.size(); ++i) {
      const int64_t per_row = some[i]->full_shape.row_elements();
      EXPECT_EQ(some[i]->full_shape, params()[i]->full_shape);
      EXPECT_EQ(some[i]->part, part) << some[i]->name;
      const auto rows = [&](const Values& all) {
        return Values(all.begin() + part.begin * per_row, all.begin() + part.end * per_row);
      };
      expect_same_bits(download(some[i]->value), rows(download(params()[i]->value)), "part of " + some[i]->name);
      expect_same(found.grads[i], rows(whole_.grads[i]), options_.exactness, "part: gradient of " + some[i]->name);
    }
  }

  void check_numeric_gradients() {
    // A GPU's gradients have been compared with the CPU's.
    if (device_ != Device::kCpu || options_.samples == 0) return;
    Values x = x_;
    check_gradient("x", x, whole_.dx, [&] { return harness_->forward(x); });
    for (size_t i = 0; i < params().size(); ++i) {
      Param& param = *params()[i];
      if (param.role != ParamRole::kTrained) continue;
      const Values before = download(param.value);
      Values value = before;
      const auto set = [&](const Values& values) { param.set_value(upload(values, param.shape(), Device::kCpu)); };
      check_gradient(param.name, value, whole_.grads[i], [&] {
        set(value);
        return harness_->forward(x_);
      });
      set(before);
    }
  }

  // Varies elements of `values`, from which `run` computes y.
  template <class Run>
  void check_gradient(const std::string& name, Values& values, const Values& gradient, const Run& run) {
    const auto count = static_cast<int64_t>(values.size());
    const auto step = static_cast<float>(options_.step);
    const double usual = std::max(root_mean_square(gradient), 1e-3), rounding = rounding_of_differences();
    const int64_t stride = (count + options_.samples - 1) / options_.samples;
    for (int64_t i = 0; i < count; i += std::max<int64_t>(stride, 1)) {
      float& value = values[static_cast<size_t>(i)];
      const float before = value, above = before + step, below = before - step;
      value = above;
      const double high = dot(run(), dy_);
      value = below;
      const double low = dot(run(), dy_);
      value = before;
      const double numeric = (high - low) / (static_cast<double>(above) - static_cast<double>(below));
      const double found = static_cast<double>(gradient[static_cast<size_t>(i)]);
      const double limit = options_.tolerance * std::max(usual, std::abs(numeric)) + rounding;
      margins::record({__FILE__, __LINE__}, std::abs(found - numeric), limit);
      if (std::abs(found - numeric) <= limit) continue;
      ADD_FAILURE() << "gradient of " << name << " at " << i << ": " << found << ", by differences " << numeric;
      return;  // one is enough
    }
  }

  // An upper bound of what rounding y does to a difference, if each y is off by some units in the last place.
  double rounding_of_differences() const {
    double squares = 0;
    for (size_t i = 0; i < dy_.size(); ++i) squares += std::pow(whole_.y[i] * dy_[i], 2);
    return 0x1p-20 * std::sqrt(squares) / options_.step;
  }

  const MakeLayer& make_;
  Shape in_;
  Device device_;
  LayerCheck options_;
  Values x_, dy_;
  std::unique_ptr<Harness> harness_;
  Results whole_;
};

}  // namespace

Values distinct_values(int64_t count, double range, uint64_t seed) {
  Values values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    const double level = 2 * (static_cast<double>(i) + 0.5) / static_cast<double>(count) - 1;
    const double magnitude = kGap + (1 - kGap) * std::abs(level);
    values[i] = static_cast<float>(range * std::copysign(magnitude, level));
  }
  const Philox random(seed, RandomStream::kTest);
  for (size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[random.bits(i) % i]);
  return values;
}

void check_layer(const MakeLayer& make, const Shape& in, Device device, const LayerCheck& options) {
  Check(make, in, device, options).run();
}

void check_layer(const std::string& keys, const Shape& in, Device device, const LayerCheck& options) {
  SCOPED_TRACE(keys + " on " + in.str());
  check_layer([&](std::optional<Slice> part) { return layer_from(keys, in, part); }, in, device, options);
}

}  // namespace owt

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <deque>

#include "layers/base/sampled_rows.h"
#include "src/system/check.h"
#include "tests/parallel/update_test.h"

// Parameters of which a step updates some rows (Param::grad_rows).
namespace owt::rows_update_test {
namespace {

class RowsUpdateTest : public UpdateTest {
 protected:
  Param make_rows(const std::string& name, const Shape& shape, const std::vector<float>& value, DType grad_type,
                  int64_t most = 0) const {
    Param param;
    param.name = name;
    param.full_shape = shape;
    param.part = {0, shape.rows()};
    param.grad_type = grad_type;
    param.most_grad_rows = most;
    param.cpu_reads_copy16 = true;
    param.allocate({device(), Precision::kBf16});
    param.set_value(upload(value, shape, Device::kCpu));
    return param;
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, RowsUpdateTest, testing::ValuesIn(devices()), device_name);

const char* const kRules[] = {"", "nesterov = true", "type = 'adamw'", "type = 'rmsprop'\nmomentum = 0.5",
                              "type = 'adagrad'"};

std::vector<float> row_values(int64_t row, int64_t width) {
  std::vector<float> values;
  for (int64_t i = 0; i < width; ++i) values.push_back(static_cast<float>((row * 31 + i * 7) % 64) / 8 - 3.5f);
  return values;
}

std::vector<float> row_gradient(int64_t row, int64_t width, int step) {
  std::vector<float> values;
  for (int64_t i = 0; i < width; ++i) values.push_back(static_cast<float>((row * 5 + i * 3 + step * 11) % 32) / 4 - 3);
  return values;
}

std::vector<float> appended(std::vector<float> all, const std::vector<float>& more) {
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

// A row gets the bits of a parameter that is this row alone, and other rows stay as they are. Widths of one element, of
// elements that do not come in fours, and of rows that end within a block of threads.
TEST_P(RowsUpdateTest, GivesARowTheBitsOfAParameterOfItsOwn) {
  constexpr int64_t kRows = 23;
  const std::vector<std::vector<int32_t>> steps = {
      {0, 1, 5, 21, 22, kNoRow, kNoRow}, {1, 4, 22, kNoRow, kNoRow, kNoRow, kNoRow}, {2, 3, 6, 7, 8, 9, 20}};
  const std::vector<DType> types =
      device() == Device::kCpu ? std::vector{DType::kF32} : std::vector{DType::kF32, DType::kBF16};
  for (const char* rule : kRules)
    for (const DType type : types)
      for (const int64_t width : {1, 6, 8, 260, 1500}) {
        SCOPED_TRACE(concat(rule, ", gradients in ", name_of(type), ", rows of ", width));
        Config config = Config::text(concat("learning_rate = 0.1\n", rule));
        const OptimizerSettings settings = OptimizerSettings::from(config);
        Optimizer optimizer(settings);
        std::vector<float> values;
        std::deque<Param> alone;
        for (int64_t row = 0; row < kRows; ++row) {
          values = appended(values, row_values(row, width));
          alone.push_back(make_rows("w", {1, width}, row_values(row, width), type));
        }
        Param whole = make_rows("w", {kRows, width}, values, type, std::ssize(steps[0]));
        for (int step = 0; step < std::ssize(steps); ++step) {
          std::vector<float> packed;
          std::vector<Param*> touched;
          for (const int32_t row : steps[static_cast<size_t>(step)]) {
            const std::vector<float> gradient =
                row == kNoRow ? std::vector<float>(static_cast<size_t>(width), NAN) : row_gradient(row, width, step);
            packed = appended(packed, gradient);
            if (row == kNoRow) continue;
            Param& its = alone[static_cast<size_t>(row)];
            its.grad = upload(gradient, its.shape(), device(), type);
            its.grad_is_zero = false;
            touched.push_back(&its);
          }
          whole.grad = upload(packed, whole.grad_shape(), device(), type);
          whole.grad_rows = upload_labels(steps[static_cast<size_t>(step)], device());
          whole.grad_is_zero = false;
          const StepRates rates{0.125, 0.125, static_cast<double>(step)};
          update(optimizer, touched, rates, 0.5);
          update(optimizer, std::vector<Param*>{&whole}, rates, 0.5);
          EXPECT_TRUE(whole.grad_is_zero);
          std::vector<float> wanted, copies;
          std::vector<std::vector<float>> states(settings.states().size());
          for (const Param& its : alone) {
            wanted = appended(wanted, download(its.value));
            copies = appended(copies, download(its.copy16));
            for (size_t s = 0; s < states.size(); ++s)
              states[s] = appended(states[s], download(optimizer.states(its)[s]));
          }
          ASSERT_EQ(download(whole.value), wanted) << "step " << step;
          ASSERT_EQ(download(whole.copy16), copies) << "step " << step;
          for (size_t s = 0; s < states.size(); ++s) ASSERT_EQ(download(optimizer.states(whole)[s]), states[s]);
        }
      }
}

// On a GPU the gradient of a bias is f32 beside a weight's in bf16. More parameters than a launch takes.
TEST_P(RowsUpdateTest, UpdatesManyParametersBesideWholeOnes) {
  Optimizer optimizer({.momentum = 0, .decay = 0});
  std::deque<Param> all;
  std::vector<Param*> params;
  for (int i = 0; i < 2 * kRowsItemsPerUpdate + 2; ++i) {
    const bool whole = i % 2 == 0;
    all.push_back(make_rows(concat("w", i), {3, 1}, {0, 10, 20}, DType::kF32, whole ? 0 : 1));
    Param& param = all.back();
    param.grad = upload(whole ? std::vector<float>{1, 2, 3} : std::vector<float>{4}, param.grad_shape(), device());
    if (!whole) param.grad_rows = upload_labels({i % 3}, device());
    param.grad_is_zero = false;
    params.push_back(&param);
  }
  for (int i = 0; i < 2; ++i) {  // the second update has no gradients
    update(optimizer, params, i == 0 ? 1 : 0);
    for (int p = 0; p < std::ssize(all); ++p) {
      std::vector<float> wanted = {0, 10, 20};
      if (p % 2 == 0)
        wanted = {-1, 8, 17};
      else
        wanted[static_cast<size_t>(p % 3)] -= 4;
      EXPECT_EQ(download(all[static_cast<size_t>(p)].value), wanted) << p;
    }
  }
}

}  // namespace
}  // namespace owt::rows_update_test

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "src/system/check.h"
#include "tests/parallel/update_test.h"

// Dense weights whose gradients are products of factors, which the update multiplies.
namespace owt::product_update_test {
namespace {

using testing::ElementsAre;

using ProductUpdateTest = UpdateTest;
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ProductUpdateTest);
INSTANTIATE_TEST_SUITE_P(Gpus, ProductUpdateTest, testing::ValuesIn(gpu_devices()), device_name);

// A weight in bf16 of out x features, and the factors of its gradient.
struct Product {
  Param weight;
  GradientFactors factors;      // must live until the update has run
  std::vector<float> gradient;  // in f64, rounded once

  // The factors are multiples of `unit`, between -4 and 4 of them.
  Product(const std::string& name, Device device, int64_t rows, int64_t out, int64_t features, float unit = 1) {
    weight.name = name;
    weight.full_shape = {out, features};
    weight.part = {0, out};
    weight.keeps_grad = false;
    weight.allocate({device, Precision::kBf16});
    std::vector<float> value(static_cast<size_t>(out * features)), dy(static_cast<size_t>(rows * out)),
        x(static_cast<size_t>(rows * features));
    for (size_t i = 0; i < value.size(); ++i) value[i] = static_cast<float>(i % 37) - 11.25f;
    for (size_t i = 0; i < dy.size(); ++i) dy[i] = unit * (static_cast<float>(i * 7 % 9) - 4);
    for (size_t i = 0; i < x.size(); ++i) x[i] = unit * (static_cast<float>(i * 5 % 8) - 3);
    weight.set_value(upload(value, weight.shape(), Device::kCpu));
    give({upload(dy, {rows, out}, device, DType::kBF16), upload(x, {rows, features}, device, DType::kBF16)});
    for (int64_t o = 0; o < out; ++o)
      for (int64_t f = 0; f < features; ++f) {
        double sum = 0;
        for (int64_t n = 0; n < rows; ++n)
          sum += double{dy[static_cast<size_t>(n * out + o)]} * x[static_cast<size_t>(n * features + f)];
        gradient.push_back(static_cast<float>(sum));
      }
  }

  // Does what a backward pass does.
  void give(const GradientFactors& of_a_pass) {
    factors = of_a_pass;
    weight.factors = factors;
    weight.grad_is_zero = false;
  }
};

// Like the weight, with its gradient in memory.
Param with_stored_gradient(const Product& product, Device device) {
  Param stored = product.weight;
  stored.factors.reset();
  stored.keeps_grad = true;
  stored.value = stored.copy16 = {};
  stored.allocate({device, Precision::kBf16});
  stored.set_value(product.weight.value.to(Device::kCpu));
  stored.grad = upload(product.gradient, stored.shape(), device);
  return stored;
}

// Shapes of one element, of one tile, and around their edges: rows that are no multiple of a slice of 16 or 32; numbers
// of features that come in eights, in fours, and in neither. The factors are small integers, so that sums are exact.
std::vector<Product> products_of_every_shape(Device device) {
  std::vector<Product> all;
  const int64_t shapes[][3] = {{1, 1, 1},     {3, 10, 12},   {16, 64, 128}, {17, 64, 136},
                               {32, 65, 132}, {33, 72, 129}, {70, 130, 260}};
  for (const auto& [rows, out, features] : shapes)
    all.emplace_back(concat("w", all.size(), ".weight"), device, rows, out, features);
  return all;
}

const char* const kEveryRule[] = {"",
                                  "nesterov = true",
                                  "momentum_correction = true",
                                  "momentum_correction = true\nnesterov = true",
                                  "type = 'adamw'",
                                  "type = 'rmsprop'",
                                  "type = 'rmsprop'\nmomentum = 0.5",
                                  "type = 'adagrad'",
                                  "type = 'rmsprop_warmup'",
                                  "type = 'proximal'\nl1 = 0.5"};

TEST_P(ProductUpdateTest, GivesAProductOfFactorsTheBitsThatItsStoredGradientGets) {
  for (const char* rule : kEveryRule) {
    Config config = Config::text(concat("learning_rate = 0.1\n", rule));
    const OptimizerSettings settings = OptimizerSettings::from(config);
    for (Product& product : products_of_every_shape(device())) {
      Optimizer by_products(settings), by_memory(settings);
      SCOPED_TRACE(concat(rule, ", ", product.factors.x.shape(), " to ", product.weight.shape()));
      Param stored = with_stored_gradient(product, device());
      for (int step = 0; step < 2; ++step) {  // the second one has states
        product.give(product.factors);
        stored.grad_is_zero = false;
        const StepRates rates{0.125, 0.5, static_cast<double>(step), 0.25};
        update(by_products, std::vector<Param*>{&product.weight}, rates, 0.5);
        update(by_memory, std::vector<Param*>{&stored}, rates, 0.5);
      }
      EXPECT_EQ(download(product.weight.value), download(stored.value));
      EXPECT_EQ(download(product.weight.copy16), download(stored.copy16));
      for (size_t i = 0; i < settings.states().size(); ++i)
        EXPECT_EQ(download(by_products.states(product.weight)[i]), download(by_memory.states(stored)[i])) << i;
    }
  }
}

TEST_P(ProductUpdateTest, SumsTheRowsOfABiasesFactor) {
  for (const auto& [rows, out] : {std::pair<int64_t, int64_t>{1, 1}, {3, 10}, {33, 130}, {256, 64}}) {
    Optimizer optimizer({.momentum = 0, .decay = 0});
    Product bias("w.bias", device(), rows, out, 1);
    std::vector<float> wanted = download(bias.weight.value);
    const std::vector<float> dy = download(bias.factors.dy);
    for (size_t i = 0; i < dy.size(); ++i) wanted[i % wanted.size()] -= 0.5f * dy[i];
    bias.give({bias.factors.dy, {}});
    update(optimizer, std::vector<Param*>{&bias.weight}, {.biases = 0.5}, 1);
    EXPECT_EQ(download(bias.weight.value), wanted) << rows << " rows of " << out;
  }
}

TEST_P(ProductUpdateTest, TakesAProductOnceAndThenNeedsAnotherGradient) {
  Optimizer optimizer({.momentum = 0, .decay = 0});
  Product product("w", device(), 2, 3, 4);
  const uint64_t version = product.weight.version;
  update(optimizer, product.weight, 1);
  EXPECT_FALSE(product.weight.factors);
  EXPECT_TRUE(product.weight.grad_is_zero);
  EXPECT_EQ(product.weight.version, version + 1);
  const std::vector<float> once = download(product.weight.value);
  update(optimizer, product.weight, 1);
  EXPECT_EQ(download(product.weight.value), once);
}

// More products than one launch takes, among parameters with stored gradients.
TEST_P(ProductUpdateTest, UpdatesProductsAndStoredGradientsTogether) {
  Optimizer optimizer({.momentum = 0, .decay = 0});
  std::vector<Product> products;
  std::vector<Param> biases;
  for (int64_t i = 0; i < kProductsPerUpdate + 2; ++i) {
    products.emplace_back(concat("w", i), device(), 2, i == 3 ? 70 : 1 + i, i == 4 ? 140 : 4);
    biases.push_back(make_param({1, 2}, {static_cast<float>(i), 0}, Precision::kBf16));
  }
  std::vector<Param*> all;
  std::vector<std::vector<float>> wanted;
  for (size_t i = 0; i < products.size(); ++i) {
    all.push_back(&products[i].weight);
    all.push_back(&biases[i]);
    wanted.push_back(download(products[i].weight.value));
    for (size_t k = 0; k < wanted[i].size(); ++k) wanted[i][k] -= 0.5f * products[i].gradient[k];
  }
  update(optimizer, all, 0.5);
  for (size_t i = 0; i < products.size(); ++i) {
    EXPECT_EQ(download(products[i].weight.value), wanted[i]) << i;
    EXPECT_THAT(download(biases[i].value), ElementsAre(1 - 0.5f * static_cast<float>(i), 2)) << i;
  }
}

// The address is a multiple of 16 and two bytes, where only single elements can be loaded.
TEST_P(ProductUpdateTest, MultipliesFactorsAtAnyAddress) {
  Optimizer optimizer({.momentum = 0, .decay = 0});
  for (const bool of_x : {false, true}) {
    Product product("w", device(), 3, 8, 16);
    std::vector<float> wanted = download(product.weight.value);
    for (size_t i = 0; i < wanted.size(); ++i) wanted[i] -= product.gradient[i];
    GradientFactors moved = product.factors;
    Tensor& factor = of_x ? moved.x : moved.dy;
    std::vector<float> behind = download(factor);
    behind.insert(behind.begin(), 99);
    const Shape shape{std::ssize(behind)};
    factor = upload(behind, shape, device(), DType::kBF16).part(1, factor.shape());
    product.give(moved);
    update(optimizer, product.weight, 1);
    EXPECT_EQ(download(product.weight.value), wanted) << (of_x ? "x" : "dy");
  }
}

// Sums that bf16 does not represent: the weights are 0 before the update.
TEST_P(ProductUpdateTest, RoundsNoProductToBf16) {
  Optimizer optimizer({.momentum = 0, .decay = 0});
  Product product("w", device(), 200, 66, 130, 0.17f);
  fill(product.weight.value, 0);
  const std::vector<float> dy = download(product.factors.dy), x = download(product.factors.x);
  update(optimizer, product.weight, -1);
  const std::vector<float> found = download(product.weight.value);
  for (int64_t o = 0; o < 66; ++o)
    for (int64_t f = 0; f < 130; ++f) {
      double sum = 0, sizes = 0;
      for (int64_t n = 0; n < 200; ++n) {
        const double term = double{dy[static_cast<size_t>(n * 66 + o)]} * x[static_cast<size_t>(n * 130 + f)];
        sum += term;
        sizes += std::abs(term);
      }
      ASSERT_NEAR(found[static_cast<size_t>(o * 130 + f)], sum, 200 * 0x1p-24 * sizes) << o << ", " << f;
    }
}

TEST_P(ProductUpdateTest, AFactorThatIsNotANumberReachesAllItsWeightsAndNoOthers) {
  Optimizer optimizer({.momentum = 0, .decay = 0});
  Product product("w", device(), 33, 65, 130);
  std::vector<float> x = download(product.factors.x);
  x[32 * 130 + 128] = NAN;  // the last row
  product.give({product.factors.dy, upload(x, {33, 130}, device(), DType::kBF16)});
  update(optimizer, product.weight, 1);
  const std::vector<float> found = download(product.weight.value);
  for (int64_t i = 0; i < std::ssize(found); ++i)
    ASSERT_EQ(std::isnan(found[static_cast<size_t>(i)]), i % 130 == 128) << i;
}

}  // namespace
}  // namespace owt::product_update_test

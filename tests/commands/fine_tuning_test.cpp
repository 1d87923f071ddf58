// Runs that start from another run's weights, except in some layers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "src/files/safetensors.h"
#include "src/system/log.h"
#include "tests/support/message_of.h"
#include "tests/support/whole_runs.h"

namespace owt::fine_tuning_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

using Weights = std::map<std::string, std::vector<float>>;

class FineTuning : public ::testing::Test, protected WholeRuns {
 protected:
  // The weights after the first step, which has a rate of nearly 0: the initial weights, to 1e-6.
  Weights begun(const std::string& out, const StartWeights& start, const Overrides& changes = {}) {
    TrainOptions options;
    options.out = path(out);
    options.start = start;
    options.threads = 1;
    train(small_settings(kSmallRecipe,
                         merged({{"schedule.max_steps", "1"}, {"optimizer.learning_rate", "1e-12"}}, changes)),
          options);
    return weights_in(weights_of(out));
  }
  static Weights weights_in(const std::string& file) {
    SafetensorsReader reader(file);
    Weights all;
    for (const auto& entry : reader.entries()) {
      const Tensor values = reader.read(entry.name);
      all[entry.name].assign(values.data(), values.data() + values.elements());
    }
    return all;
  }
  std::string trained() {
    if (list_checkpoints(path("trained")).empty()) run("trained", {{"schedule.max_steps", "3"}});
    return weights_of("trained");
  }
  std::string log_of(const std::string& out) const { return read_file(path(out) + "/log.txt"); }
};

void expect_from(const Weights& found, const Weights& wanted, const std::string& name) {
  ASSERT_EQ(found.at(name).size(), wanted.at(name).size());
  for (size_t i = 0; i < found.at(name).size(); ++i)
    ASSERT_NEAR(found.at(name)[i], wanted.at(name)[i], 1e-6) << name << " " << i;
}

TEST_F(FineTuning, TakesAllWeightsButThoseOfExceptedLayers) {
  const Weights learned = weights_in(trained()), drawn = begun("drawn", {});
  ASSERT_NE(learned.at("fc3.weight"), drawn.at("fc3.weight"));
  for (const auto& [workers, strategy] : {std::pair("1", "dp"), {"3", "owt-d"}, {"2", "dp-zero"}, {"3", "pipeline"}}) {
    const std::string out = concat(strategy, workers);
    SCOPED_TRACE(out);
    const Weights found = begun(out, {.file = trained(), .except = {"fc[23]"}},
                                {{"parallel.workers", workers}, {"parallel.strategy", strategy}});
    for (const auto& [name, values] : learned) expect_from(found, name < "fc2" ? learned : drawn, name);
    EXPECT_THAT(log_of(out),
                AllOf(HasSubstr("initialised randomly: fc2, fc3"), Not(HasSubstr("the model does not use"))));
  }
}

// A layer is drawn as a whole: a bias that would fit does not fit to other weights.
TEST_F(FineTuning, DrawsLayersThatDoNotFit) {
  SafetensorsReader from(trained());
  std::vector<SafetensorsWriter::NamedShape> entries;
  for (const auto& entry : from.entries())
    if (entry.name != "fc2.bias")
      entries.push_back({entry.name, entry.name == "fc3.weight" ? Shape{3, 17} : entry.shape});
  SafetensorsWriter other(path("other"), entries);
  for (const auto& [name, shape] : entries) {
    const Tensor values = from.read(name);
    other.write(name, std::vector<float>(values.data(), values.data() + shape.elements()));
  }
  other.finish();

  EXPECT_THAT(message_of([&] { begun("refused", {.file = path("other")}); }),
              AllOf(HasSubstr("no tensor 'fc2.bias'"),
                    HasSubstr("; --except fc2 initialises this layer randomly, --except-mismatched every")));
  EXPECT_THAT(message_of([&] { begun("refused", {.file = path("other"), .except = {"fc2"}}); }),
              AllOf(HasSubstr("tensor 'fc3.weight' is 3x17"), HasSubstr("; --except fc3 initialises")));
  const Weights learned = weights_in(trained()), drawn = begun("drawn", {});
  for (const std::string workers : {"1", "2"}) {
    const Weights found = begun("fits" + workers, {.file = path("other"), .except = {}, .except_mismatched = true},
                                {{"parallel.workers", workers}});
    for (const auto& [name, values] : learned) expect_from(found, name < "fc2" ? learned : drawn, name);
    EXPECT_THAT(log_of("fits" + workers), HasSubstr("initialised randomly: fc2, fc3"));
  }
}

// Names by PyTorch's DataParallel and torch.compile.
TEST_F(FineTuning, TakesTensorsWhoseNamesBeginWithAWrappersWord) {
  SafetensorsReader from(trained());
  std::vector<SafetensorsWriter::NamedShape> entries;
  for (const auto& entry : from.entries()) entries.push_back({"module._orig_mod." + entry.name, entry.shape});
  SafetensorsWriter other(path("other"), entries);
  for (const auto& [name, shape] : entries) {
    const Tensor values = from.read(bare_tensor_name(name));
    other.write(name, std::vector<float>(values.data(), values.data() + shape.elements()));
  }
  other.finish();
  const Weights learned = weights_in(trained()), found = begun("found", {.file = path("other"), .except = {"fc3"}});
  for (const auto& [name, values] : learned)
    if (!name.starts_with("fc3")) expect_from(found, learned, name);
  EXPECT_THAT(log_of("found"), AllOf(HasSubstr("ignoring the prefix 'module._orig_mod.' of its tensor names"),
                                     Not(HasSubstr("the model does not use"))));
}

TEST_F(FineTuning, AFileOfWhichNothingFitsIsNamedWithBothSides) {
  SafetensorsWriter other(path("other"), {{"features.0.weight", {2}}});
  other.write("features.0.weight", std::vector<float>{1, 2});
  other.finish();
  EXPECT_THAT(
      message_of([&] { begun("refused", {.file = path("other"), .except = {}, .except_mismatched = true}); }),
      AllOf(HasSubstr("no layer fits"), HasSubstr("'features.0.weight 2'"), HasSubstr("the model has 'conv1.weight ")));
}

TEST_F(FineTuning, SaysWhatCannotBeExcepted) {
  EXPECT_THAT(message_of([&] { begun("a", {.file = trained(), .except = {"fc9"}}); }),
              HasSubstr("--except fc9: no layer with weights is called that; there are conv1, "));
  EXPECT_THAT(message_of([&] { begun("b", {.file = trained(), .except = {"*"}}); }),
              HasSubstr("nothing is left to take"));
}

}  // namespace
}  // namespace owt::fine_tuning_test

// All keys of a recipe with their defaults: for tests of the reader and of the page that lists the keys.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/runs.h"

namespace owt {

// A recipe with only the required keys.
inline const char* const kLeastRecipe = R"(
[model]
name = "least"
input = [3, 8, 8]
classes = 10
layer = [{ name = "fc", type = "dense", out = 10 }]
[data]
format = "synthetic"
batch = 4
[optimizer]
learning_rate = 0.1
[schedule]
epochs = 3
)";

struct RecipeKey {
  const char* key;
  std::function<std::string(const Settings&)> shown;
  const char* otherwise;                                    // in the form of `shown`
  std::vector<std::pair<const char*, const char*>> values;  // TOML, and the form of `shown`
  std::vector<const char*> refused;
  Overrides with = {};  // keys that are required for this key
};

template <class Value>
std::string text_of(const Value& value) {
  return concat(value);
}
inline std::string text_of(bool value) { return value ? "true" : "false"; }

#define OWT_SHOWN(field) [](const Settings& s) { return text_of(s.field); }

inline Overrides optimizer_type(const char* type) { return {{"optimizer.type", type}}; }

inline const std::vector<RecipeKey>& recipe_keys() {
  static const std::vector<RecipeKey> keys = {
      {"data.dir", OWT_SHOWN(data.dir), "", {{"'there'", "there"}}, {"3"}},
      {"data.classes", OWT_SHOWN(data.classes), "name", {{"'number'", "number"}, {"'data'", "data"}}, {"'none'", "3"}},
      {"data.shuffle", OWT_SHOWN(data.shuffle), "true", {{"false", "false"}}, {"0"}},
      {"data.sampling",
       [](const Settings& s) { return text_of(s.data.sampling == Sampling::kBalanced); },
       "false",
       {{"'balanced'", "true"}, {"'uniform'", "false"}},
       {"'sqrt'", "true"}},
      {"data.targets", OWT_SHOWN(data.targets), "false", {{"true", "true"}}, {"1"}},
      {"data.validation",
       OWT_SHOWN(data.validation),
       "0",
       {{"0.1", "0.1"}, {"0.99", "0.99"}, {"2", "2"}, {"5000", "5000"}},
       {"-0.1", "1", "1.5", "'a'"}},
      {"data.accumulate",
       OWT_SHOWN(data.accumulate),
       "1",
       {{"4", "4"}, {"1048576", "1048576"}},
       {"0", "1048577", "1.5"}},
      {"data.train_images",
       OWT_SHOWN(data.train_images),
       "5000",
       {{"1", "1"}, {"10000000", "10000000"}},
       {"0", "10000001"}},
      {"data.test_images", OWT_SHOWN(data.test_images), "1000", {{"1", "1"}}, {"0", "10000001"}},
      {"data.seed", OWT_SHOWN(data.seed), "1", {{"0", "0"}, {"7", "7"}}, {"-1"}},
      {"data.decoder",
       [](const Settings& s) { return text_of(name_of(s.data.decoder)); },
       "cpu",
       {{"'gpu'", "gpu"}, {"'auto'", "auto"}},
       {"'nvjpeg'", "1"},
       {{"data.format", "'shards'"}, {"data.augment", "{ crop = 8 }"}}},
      {"data.loader_threads", OWT_SHOWN(data.loader_threads), "1", {{"256", "256"}}, {"0", "257"}},
      {"data.resident_mb",
       OWT_SHOWN(data.resident_bytes),
       "8589934592",
       {{"0", "0"}, {"3", "3145728"}},
       {"-1", "16777217"}},
      {"loss.type",
       [](const Settings& s) { return text_of(name_of(s.loss.type)); },
       "softmax",
       {{"logistic", "logistic"}},
       {"hinge"}},
      {"loss.label_smoothing",
       OWT_SHOWN(loss.label_smoothing),
       "0",
       {{"0.1", "0.1"}, {"0.99", "0.99"}},
       {"-0.1", "1", "2"}},
      {"loss.sample", OWT_SHOWN(loss.sample), "1", {{"0.1", "0.1"}, {"1", "1"}}, {"0", "-0.1", "1.5"}},
      {"loss.distill.weight",
       OWT_SHOWN(loss.targets.weight),
       "0.9",
       {{"0", "0"}, {"1", "1"}},
       {"-0.1", "1.1"},
       {{"loss.distill.run", "'runs/teacher'"}}},
      {"loss.distill.temperature",
       OWT_SHOWN(loss.targets.temperature),
       "4",
       {{"1", "1"}, {"20", "20"}},
       {"0", "1001"},
       {{"loss.distill.run", "'runs/teacher'"}}},
      {"optimizer.momentum", OWT_SHOWN(optimizer.momentum), "0.9", {{"0", "0"}, {"0.99", "0.99"}}, {"-0.1", "1"}},
      {"optimizer.decay", OWT_SHOWN(optimizer.decay), "0.0005", {{"0", "0"}, {"2", "2"}}, {"-1"}},
      {"optimizer.clip", OWT_SHOWN(optimizer.clip), "0", {{"5", "5"}}, {"-1"}},
      {"optimizer.ema", OWT_SHOWN(ema.decay), "0", {{"0.9999", "0.9999"}}, {"-0.1", "1"}},
      {"optimizer.ema_every", OWT_SHOWN(ema.every), "1", {{"32", "32"}}, {"0", "1.5"}, {{"optimizer.ema", "0.9"}}},
      {"optimizer.ema_ramp", OWT_SHOWN(ema.ramp), "0", {{"3", "3"}}, {"-1", "101"}, {{"optimizer.ema", "0.9"}}},
      {"optimizer.ema_warmup", OWT_SHOWN(ema.warmup), "true", {{"false", "false"}}, {"0"}},
      {"optimizer.nesterov", OWT_SHOWN(optimizer.nesterov), "false", {{"true", "true"}}, {"1"}},
      {"optimizer.momentum_correction", OWT_SHOWN(optimizer.momentum_correction), "false", {{"true", "true"}}, {"0"}},
      {"optimizer.trust",
       OWT_SHOWN(optimizer.trust),
       "0.001",
       {{"0.02", "0.02"}, {"2", "2"}},
       {"0", "-1"},
       optimizer_type("lars")},
      {"optimizer.adapt_all",
       OWT_SHOWN(optimizer.adapt_all),
       "false",
       {{"true", "true"}},
       {"1"},
       optimizer_type("lars")},
      {"optimizer.eps", OWT_SHOWN(optimizer.eps), "1e-09", {{"0.5", "0.5"}}, {"0", "-1"}, optimizer_type("lars")},
      {"optimizer.beta1",
       OWT_SHOWN(optimizer.beta1),
       "0.9",
       {{"0", "0"}, {"0.99", "0.99"}},
       {"-0.1", "1"},
       optimizer_type("adamw")},
      {"optimizer.beta2",
       OWT_SHOWN(optimizer.beta2),
       "0.999",
       {{"0", "0"}, {"0.99", "0.99"}},
       {"-0.1", "1"},
       optimizer_type("adamw")},
      {"optimizer.alpha",
       OWT_SHOWN(optimizer.alpha),
       "0.99",
       {{"0", "0"}, {"0.9", "0.9"}},
       {"-0.1", "1"},
       optimizer_type("rmsprop")},
      {"optimizer.rmsprop_rate",
       OWT_SHOWN(optimizer.rmsprop_rate),
       "0.0003",
       {{"0.01", "0.01"}},
       {"0", "-1"},
       optimizer_type("rmsprop_warmup")},
      {"optimizer.center",
       OWT_SHOWN(optimizer.center),
       "10",
       {{"0", "0"}, {"2.5", "2.5"}},
       {"-1"},
       optimizer_type("rmsprop_warmup")},
      {"optimizer.period",
       OWT_SHOWN(optimizer.period),
       "5",
       {{"0.5", "0.5"}},
       {"0", "-1"},
       optimizer_type("rmsprop_warmup")},
      {"optimizer.l1", OWT_SHOWN(optimizer.l1), "0", {{"0.001", "0.001"}}, {"-1"}, optimizer_type("proximal")},
      {"optimizer.trust_region",
       OWT_SHOWN(optimizer.trust_region),
       "1",
       {{"0.5", "0.5"}},
       {"0", "-1"},
       optimizer_type("proximal")},
      {"optimizer.ns_steps", OWT_SHOWN(optimizer.ns_steps), "5", {{"3", "3"}}, {"0", "100"}, optimizer_type("muon")},
      {"optimizer.unit_weights",
       OWT_SHOWN(optimizer.unit_weights),
       "false",
       {{"true", "true"}},
       {"1"},
       optimizer_type("muon")},
      {"optimizer.adjust_lr",
       [](const Settings& s) { return text_of(s.optimizer.adjustment(4, 1)); },
       "2",
       {{"'none'", "1"}, {"'original'", "2"}, {"'match_rms_adamw'", "0.4"}},
       {"'other'", "1"},
       optimizer_type("muon")},
      {"optimizer.others",
       [](const Settings& s) {
         return concat(s.optimizer.others_rate, " ", s.optimizer.others_momentum, " ", s.optimizer.others_nesterov, " ",
                       s.optimizer.others_decay, " ", s.model.muon_except ? s.model.muon_except->front() : "");
       },
       "0.1 0.9 0 0.0005 fc",
       {{"{ learning_rate = 0.5, momentum = 0.2, nesterov = true, decay = 0, layers = ['f*'] }", "0.5 0.2 1 0 f*"}},
       {"3"},
       optimizer_type("muon")},
      {"optimizer.lookahead", OWT_SHOWN(ema.lookahead), "false", {{"true", "true"}}, {"1"}, {{"optimizer.ema", "0.9"}}},
      {"optimizer.freeze",
       [](const Settings& s) { return text_of(s.model.frozen.size()); },
       "0",
       {{"[]", "0"}},
       {"'conv1'", "[1]", "['conv1']", "['fc']"}},
      {"schedule.max_steps", OWT_SHOWN(schedule.max_steps), "0", {{"7", "7"}}, {"-1", "1.5"}},
      {"schedule.warmup_epochs", OWT_SHOWN(schedule.warmup_epochs), "0", {{"3", "3"}}, {"-1", "3.1"}},
      {"schedule.warmup_factor",
       OWT_SHOWN(schedule.warmup_factor),
       "0",
       {{"1", "1"}},
       {"-0.1", "1.1"},
       {{"schedule.warmup_epochs", "0.5"}}},
      {"parallel.workers", OWT_SHOWN(parallel.workers), "1", {{"4096", "4096"}}, {"0", "4097"}},
      {"parallel.model_ranks", OWT_SHOWN(parallel.model_ranks), "0", {{"4096", "4096"}}, {"-1", "4097"}},
      {"parallel.shares",
       [](const Settings& s) {
         return concat(s.parallel.shares.empty() ? 0 : s.parallel.shares[0], s.parallel.measure_shares ? "?" : "");
       },
       "0",
       {{"[2]", "2"}, {"[0.5]", "0.5"}, {"'measured'", "0?"}, {"'equal'", "0"}},
       {"[1, 1]", "[]", "[0]", "[-1]", "[nan]", "[inf]", "['a']", "'quick'", "2"}},
      {"parallel.scale_lr", OWT_SHOWN(parallel.scale_lr), "none", {{"linear", "linear"}, {"sqrt", "sqrt"}}, {"square"}},
      {"parallel.average_every",
       OWT_SHOWN(parallel.average_every),
       "1",
       {{"8", "8"}, {"1048576", "1048576"}},
       {"0", "1048577", "1.5"}},
      {"parallel.average_from",
       OWT_SHOWN(parallel.average_from),
       "0",
       {{"5", "5"}, {"0.5", "0.5"}},
       {"-1"},
       {{"parallel.average_every", "8"}}},
      {"parallel.bucket_mb",
       OWT_SHOWN(parallel.bucket_bytes),
       "8388608",
       {{"0.5", "524288"}, {"0.001", "1048"}},
       {"0", "65537"}},
      {"parallel.wire", OWT_SHOWN(parallel.bf16_transport), "false", {{"bf16", "true"}, {"fp32", "false"}}, {"fp16"}},
      {"parallel.timeout_s", OWT_SHOWN(parallel.timeout_s), "20", {{"1", "1"}, {"86400", "86400"}}, {"0.9", "86401"}},
      {"parallel.stall_s", OWT_SHOWN(parallel.stall_s), "600", {{"1", "1"}, {"86400", "86400"}}, {"0.9", "86401"}},
      {"elastic.mirror_every", OWT_SHOWN(elastic.mirror_every), "50", {{"1", "1"}, {"7", "7"}}, {"0", "1.5"}},
      {"run.seed", OWT_SHOWN(run.seed), "1", {{"0", "0"}, {"9", "9"}}, {"-1"}},
      {"run.log_every", OWT_SHOWN(run.log_every), "20", {{"1", "1"}}, {"0"}},
      {"run.tensorboard", OWT_SHOWN(run.tensorboard), "false", {{"true", "true"}}, {"1"}},
      {"run.eval_every_epochs", OWT_SHOWN(run.eval_every_epochs), "1", {{"0", "0"}, {"5", "5"}}, {"-1"}},
      {"run.eval_every_steps", OWT_SHOWN(run.eval_every_steps), "0", {{"5", "5"}}, {"-1", "1.5"}},
      {"run.patience", OWT_SHOWN(run.patience), "0", {{"5", "5"}}, {"-1", "1.5"}},
      {"run.checkpoint_every_epochs", OWT_SHOWN(run.checkpoint_every_epochs), "1", {{"0", "0"}, {"5", "5"}}, {"-1"}},
      {"run.checkpoint_every_steps", OWT_SHOWN(run.checkpoint_every_steps), "0", {{"5", "5"}}, {"-1"}},
      {"run.keep_checkpoints", OWT_SHOWN(run.keep_checkpoints), "3", {{"1", "1"}}, {"0", "1000001"}},
      {"run.device", OWT_SHOWN(run.device), "auto", {{"cpu", "cpu"}, {"cuda", "cuda"}}, {"gpu"}},
      {"run.canonical", OWT_SHOWN(run.canonical), "false", {{"true", "true"}}, {"'no'"}},
      {"run.deterministic", OWT_SHOWN(run.deterministic), "true", {{"false", "false"}}, {"'no'"}},
      {"run.equality_every", OWT_SHOWN(run.equality_every), "500", {{"0", "0"}, {"1", "1"}}, {"-1"}},
      {"run.cuda_graph", OWT_SHOWN(run.cuda_graph), "true", {{"false", "false"}}, {"0"}},
      {"run.cuda_graph_collectives", OWT_SHOWN(run.cuda_graph_collectives), "false", {{"true", "true"}}, {"1"}},
      {"run.update_beside", OWT_SHOWN(run.update_beside), "auto", {{"on", "on"}, {"off", "off"}}, {"true"}},
      {"parallel.strategy",
       [](const Settings& s) { return concat(name_of(s.parallel.strategy), s.parallel.automatic ? "?" : ""); },
       "owt-a",
       {{"dp", "dp"},
        {"dp-zero", "dp-zero"},
        {"dp-star", "dp-star"},
        {"ps", "ps"},
        {"owt-b", "owt-b"},
        {"owt-c", "owt-c"},
        {"owt-d", "owt-d"},
        {"mp", "mp"},
        {"mp-dense", "mp-dense"},
        {"pipeline", "pipeline"},
        {"auto", "owt-a?"}},
       {"owt-e"}},
      {"ps.delay",
       [](const Settings& s) {
         const int64_t delay = s.parallel.options.server.rules.delay;
         return delay == kNoBound ? std::string("inf") : text_of(delay);
       },
       "0",
       {{"3", "3"}, {"65536", "65536"}, {"inf", "inf"}, {"'inf'", "inf"}},
       {"-1", "65537", "0.5", "'never'"},
       {{"ps.pushes", "1"}}},  // the default depends on it
      {"ps.pushes",
       OWT_SHOWN(parallel.options.server.rules.pushes),
       "0",
       {{"2", "2"}, {"65536", "65536"}},
       {"-1", "65537"}},
      {"ps.servers", OWT_SHOWN(parallel.options.server.servers), "0", {{"3", "3"}, {"4095", "4095"}}, {"-1", "4096"}},
      {"ps.tolerate_loss", OWT_SHOWN(parallel.options.server.tolerate_loss), "false", {{"true", "true"}}, {"1"}},
      {"ps.filters",
       [](const Settings& s) { return s.parallel.options.server.filters.text(); },
       "",
       {{"['bf16']", "bf16"}, {"['fix8', 'top:0.01']", "top:0.01, fix8"}},
       {"'bf16'", "['fix9']", "['bf16', 'fix8']", "['top:0']", "['kkt:1']", "[1]"}},
      {"pipeline.schedule",
       [](const Settings& s) { return text_of(name_of(s.parallel.options.pipeline.schedule)); },
       "1f1b",
       {{"gpipe", "gpipe"},
        {"vanilla", "vanilla"},
        {"pipedream", "pipedream"},
        {"spectrain", "spectrain"},
        {"spectrain2", "spectrain2"}},
       {"2f2b"}},
      {"pipeline.micro_batches",
       OWT_SHOWN(parallel.options.pipeline.micro_batches),
       "0",
       {{"8", "8"}},
       {"-1", "65537"}},
      {"pipeline.stages",
       [](const Settings& s) {
         std::string names;
         for (const std::string& name : s.parallel.options.pipeline.stages) names += name + " ";
         return names;
       },
       "",
       {{"[\"fc\"]", "fc "}},
       {"3", "[1]"}},
      {"parallel.dense_update",
       [](const Settings& s) { return text_of(s.parallel.dense_update == DenseUpdate::kRound); },
       "false",
       {{"round", "true"}, {"step", "false"}},
       {"epoch"}},
      {"parallel.split",
       [](const Settings& s) { return text_of(name_of(s.parallel.split)); },
       "strategy",
       {{"columns", "columns"}, {"rows", "rows"}, {"less", "less"}, {"strategy", "strategy"}},
       {"outputs"}},
      {"run.precision",
       [](const Settings& s) { return text_of(name_of(s.run.precision)); },
       "fp32",
       {{"tf32", "tf32"}, {"bf16", "bf16"}},
       {"fp16"}},
      {"run.conv_algorithm",
       [](const Settings& s) { return text_of(name_of(s.run.conv_algorithm)); },
       "auto",
       {{"direct", "direct"}, {"winograd", "winograd"}},
       {"fft"}},
  };
  return keys;
}

#undef OWT_SHOWN

inline std::string shown(const RecipeKey& key, const Overrides& changes) {
  return key.shown(small_settings(kLeastRecipe, changes));
}
inline Overrides setting(const RecipeKey& key, const std::string& toml) { return merged(key.with, {{key.key, toml}}); }

}  // namespace owt

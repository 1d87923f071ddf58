#include "src/plan/plan_bytes.h"

#include <algorithm>
#include <functional>
#include <map>

#include "src/plan/plan_rows.h"
#include "src/plan/plan_updates.h"
#include "src/plan/transfers.h"
#include "src/system/check.h"
#include "src/system/log.h"

namespace owt {
namespace {

int64_t bytes_of(const std::vector<Transfer>& transfers, StepKind kind, int place) {
  int64_t total = 0;
  for (const Transfer& transfer : transfers) total += transfer.in(kind) ? transfer.bytes_at(place) : 0;
  return total;
}

int64_t bytes_of_group(const std::vector<Transfer>& transfers, StepKind kind, int members) {
  int64_t total = 0;
  for (int place = 0; place < members; ++place) total += bytes_of(transfers, kind, place);
  return total;
}

bool is_centre(const Plan& plan, int rank) { return plan.updaters > 0 ? !plan.computes(rank) : rank == 0; }

// The traffic of a rank; centre: whether the rank is a central server.
Traffic traffic_of(const std::vector<Transfer>& transfers, StepKind kind, const Star& star, bool centre, int place) {
  Traffic all;
  for (const Transfer& transfer : transfers) {
    if (!transfer.in(kind)) continue;
    if (transfer.is_between_places()) {
      all.in += transfer.receiver == place ? transfer.bytes : 0;
      all.out += transfer.bytes_at(place);
      continue;
    }
    if (!is_message(transfer.collective)) {
      all.in += transfer.bytes_at(place);
      all.out += transfer.bytes_at(place);
      continue;
    }
    OWT_CHECK(transfer.group == Group::kWorld, "a star of a part of the ranks");
    const bool sends = centre == (transfer.collective == Collective::kSend);
    (sends ? all.out : all.in) += centre ? star.others * transfer.whole / star.centres : transfer.whole;
  }
  return all;
}

// The mean over the steps between two averages.
template <class BytesIn>
int64_t mean_of_steps(const Plan& plan, const BytesIn& bytes_in) {
  if (!plan.averages()) return bytes_in(StepKind::kSynchronous);
  const int64_t local = bytes_in(StepKind::kLocal);
  return local + (bytes_in(StepKind::kAveraging) - local) / plan.request.average_every;
}

// The sum of a quantity over the layers at a place of a model group, or the largest sum of all places.
int64_t at_place(const Plan& plan, int place, const std::function<int64_t(int64_t, const LayerPlan&)>& of_layer) {
  int64_t most = 0;
  for (int at = place == kEveryPlace ? 0 : place; at < (place == kEveryPlace ? plan.places() : place + 1); ++at) {
    int64_t total = 0;
    for (int64_t i = 0; i < std::ssize(plan.layers); ++i)
      if (plan.layer(i).is_at(at)) total += of_layer(i, plan.layer(i));
    most = std::max(most, total);
  }
  return most;
}

}  // namespace

Star star_of(const Plan& plan) {
  return plan.updaters > 0 ? Star{plan.computing_ranks(), plan.updaters} : Star{plan.ranks() - 1, 1};
}

// Model groups with the same rows on each rank send the same number of bytes. So do all groups if nothing is split. The
// plan lists the transfers of the busiest group.
int64_t bytes_in(const Plan& plan, StepKind kind) {
  const StepRows step = rows_of(plan, plan.request.step_rows);
  const auto rows_from = [&](int first) {
    std::vector<int64_t> rows;
    for (int rank = first; rank < first + plan.model_ranks && plan.split(); ++rank)
      rows.push_back(step.of(rank).size());
    return rows;
  };
  std::map<std::vector<int64_t>, int64_t> sent{
      {rows_from(step.busiest_group()), bytes_of_group(plan.transfers, kind, plan.model_ranks)}};
  int64_t total = 0;
  for (int first = 0; first < plan.ranks(); first += plan.model_ranks) {
    const auto [group, fresh] = sent.try_emplace(rows_from(first));
    if (fresh) group->second = bytes_of_group(transfers_of(plan, first), kind, plan.model_ranks);
    total += group->second;
  }
  return total / plan.ranks();
}

int64_t bytes_in(const Plan& plan, StepKind kind, int rank) { return traffic(plan, kind, rank).out; }

int64_t bytes_per_step(const Plan& plan) {
  return mean_of_steps(plan, [&](StepKind kind) { return bytes_in(plan, kind); });
}

Traffic traffic(const Plan& plan, StepKind kind, int rank) {
  const Star star = star_of(plan);
  return traffic_of(transfers_of(plan, rank), kind, star, is_centre(plan, rank), plan.place_of(rank));
}

// All ranks of a group are alike except the first rank and pipeline stages. The plan lists the transfers of the busiest
// group.
int64_t busiest_link(const Plan& plan, StepKind kind) {
  int64_t most = 0;
  for (const bool centre : {true, false})
    for (int place = 0; place < plan.places(); ++place) {
      const Traffic traffic = traffic_of(plan.transfers, kind, star_of(plan), centre, place);
      most = std::max({most, traffic.in, traffic.out});
    }
  return most;
}

int64_t busiest_link(const Plan& plan) {
  return mean_of_steps(plan, [&](StepKind kind) { return busiest_link(plan, kind); });
}

std::string sent_text(const Plan& plan, int digits) {
  return sent_text(bytes_per_step(plan), busiest_link(plan), digits);
}

std::string sent_text(int64_t mean, int64_t busiest, int digits) {
  const auto mega_bytes = [&](int64_t bytes) { return format("{:.{}f}", static_cast<double>(bytes) / 1e6, digits); };
  const std::string text = mega_bytes(mean);
  return text + " MB" +
         (text == mega_bytes(busiest) ? "" : concat(" (mean; the busiest ", mega_bytes(busiest), " MB)"));
}

int64_t weight_bytes_per_rank(const Plan& plan, int place) {
  return at_place(plan, place, [](int64_t, const LayerPlan& layer) { return layer.weight_bytes_on_rank(); });
}

int64_t velocity_bytes_per_rank(const Plan& plan, int place) {
  return at_place(plan, place, [](int64_t, const LayerPlan& layer) { return layer.velocity_bytes_on_rank(); });
}

int64_t gradient_bytes_per_rank(const Plan& plan, int place) {
  return at_place(plan, place, [&](int64_t i, const LayerPlan& layer) {
    int64_t bytes = 0;
    for (size_t p = 0; p < layer.params.size(); ++p)
      if (learns(layer.roles[p]) && (p > 0 || !updates_at_once(plan, i)))
        bytes += layer.gradient_elements(layer.params[p]) * size_of(gradient_type(plan, i, p));
    return bytes;
  });
}

int64_t sample_bytes(const Plan& plan) {
  const LayerPlan& last = plan.layers.back();
  if (last.sampled.empty()) return 0;
  int64_t bytes = 4 * (last.sampled.front() + plan.request.step_rows + 2 * (std::ssize(last.sampled) + 1));
  for (size_t p = 0; p < last.params.size(); ++p)
    bytes += last.gradient_elements(last.params[p]) * (has_copy16(plan, std::ssize(plan.layers) - 1, p) ? 6 : 4);
  return bytes;
}

// Aligned for a GPU's products.
int64_t matrix_elements(int64_t rows, int64_t columns) {
  const int64_t least = std::min(rows, columns);
  return 2 * aligned_elements(rows * columns) + 2 * aligned_elements(least * least);
}

int64_t most_matrix_elements(const Plan& plan, int place) {
  int64_t most = 0;
  for (const LayerPlan& at : plan.layers)
    for (size_t p = 0; p < at.params.size(); ++p)
      if (at.matrices[p] && (place == kEveryPlace || at.is_at(place)))
        most = std::max(most, matrix_elements(at.params[p].rows(), at.params[p].row_elements()));
  return most;
}

int64_t matrix_bytes(const Plan& plan, int place) {
  const int64_t elements = most_matrix_elements(plan, place);
  if (elements == 0) return 0;
  int64_t block = 0;
  for (int64_t i = 0; i < std::ssize(plan.layers); ++i)
    for (size_t p = 0; p < plan.layer(i).params.size(); ++p) block = std::max(block, matrix_block(plan, i, p));
  return 4 * (elements + block * (1 + plan.ranks_of(matrix_group(plan)))) +
         (plan.request.on.device == Device::kCuda ? 8 * kMatrixSums : 0);
}

int64_t trained_params(const Plan& plan) {
  int64_t params = 0;
  for (const LayerPlan& layer : plan.layers)
    params += std::count(layer.roles.begin(), layer.roles.end(), ParamRole::kTrained);
  return params;
}

int64_t most_step_sums(const Plan& plan) {
  int64_t most = 0;
  for (const LayerPlan& layer : plan.layers)
    for (const std::vector<int64_t>* sums : {&layer.forward_sums, &layer.backward_sums})
      for (const int64_t each : *sums) most = std::max(most, each);
  return most;
}

int64_t norm_chunks(const Plan& plan) {
  int64_t chunks = 0;
  for (const LayerPlan& layer : plan.layers)
    for (size_t p = 0; p < layer.params.size(); ++p)
      if (layer.roles[p] == ParamRole::kTrained)
        chunks += (layer.most_elements(layer.params[p]) + kSquareChunk - 1) / kSquareChunk;
  return chunks * plan.request.norm_sums;
}

// Per parameter: its sums, the first chunk of each sum, its decay and its factor. Two more numbers are independent of
// the parameters.
int64_t norm_bytes(const Plan& plan) {
  return plan.has_norms() ? 8 * ((2 * plan.request.norm_sums + 2) * trained_params(plan) + 2 + norm_chunks(plan)) : 0;
}

int64_t copy16_bytes_per_rank(const Plan& plan, int place) {
  const bool shares = plan.shares_update();  // learning parameters are then in buckets
  int64_t in_buckets = 0;
  for (const Bucket& bucket : plan.buckets) in_buckets += shares && has_copies16(plan, bucket) ? bucket.elements : 0;
  return 2 * in_buckets + at_place(plan, place, [&](int64_t i, const LayerPlan& layer) {
           int64_t elements = 0;
           for (size_t p = 0; p < layer.params.size(); ++p)
             if (has_copy16(plan, i, p) && !(shares && learns(layer.roles[p])))
               elements += layer.most_elements(layer.params[p]);
           return 2 * elements;
         });
}

int64_t weight_copy_bytes(const Plan& plan, int place) {
  int64_t bytes = 0;
  for (int64_t i = 0; i < std::ssize(plan.layers); ++i)
    for (size_t p = 0; p < plan.layer(i).params.size(); ++p)
      if (plan.layer(i).is_at(place) && plan.layer(i).roles[p] == ParamRole::kTrained)
        bytes += plan.layer(i).params[p].elements() * (4 + (has_copy16(plan, i, p) ? 2 : 0));
  return bytes;
}

}  // namespace owt

// Bytes that a plan sends, and bytes of its weights.
#include <algorithm>
#include <map>

#include "src/core/check.h"
#include "src/core/log.h"
#include "src/plan/plan.h"
#include "src/plan/transfers.h"

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

// The ends of messages to and from a central server. The centre is rank 0, or the ranks that only serve.
struct Star {
  int others, centres;
  bool is_centre(const Plan& plan, int rank) const {
    return plan.has_servers_apart() ? !plan.computes(rank) : rank == 0;
  }
};

Star star_of(const Plan& plan) {
  return plan.has_servers_apart() ? Star{plan.computing_ranks(), plan.updating_ranks()} : Star{plan.ranks() - 1, 1};
}

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

}  // namespace

int64_t LayerPlan::weight_bytes_on_rank() const {
  int64_t bytes = 0;
  for (const Shape& param : params) bytes += 4 * most_elements(param);
  return bytes;
}

int64_t LayerPlan::velocity_bytes_on_rank() const {
  int64_t bytes = 0;
  for (size_t p = 0; p < params.size(); ++p)
    bytes += roles[p] == ParamRole::kTrained ? 4 * most_elements(params[p]) : 0;
  return bytes;
}

// Model groups with the same rows on each rank send the same number of bytes. So do all groups if nothing is split. The
// plan lists the transfers of the busiest group.
int64_t Plan::bytes_in(StepKind kind) const {
  const StepRows step = rows(request.step_rows);
  const auto rows_from = [&](int first) {
    std::vector<int64_t> rows;
    for (int rank = first; rank < first + model_ranks && split(); ++rank) rows.push_back(step.of(rank).size());
    return rows;
  };
  std::map<std::vector<int64_t>, int64_t> sent{
      {rows_from(step.busiest_group()), bytes_of_group(transfers, kind, model_ranks)}};
  int64_t total = 0;
  for (int first = 0; first < ranks(); first += model_ranks) {
    const auto [group, fresh] = sent.try_emplace(rows_from(first));
    if (fresh) group->second = bytes_of_group(transfers_of(*this, first), kind, model_ranks);
    total += group->second;
  }
  return total / ranks();
}

int64_t Plan::bytes_per_step() const {
  return mean_of_steps(*this, [this](StepKind kind) { return bytes_in(kind); });
}

Traffic Plan::traffic(StepKind kind, int rank) const {
  const Star star = star_of(*this);
  return traffic_of(transfers_of(*this, rank), kind, star, star.is_centre(*this, rank), place_of(rank));
}

// All ranks of a group are alike except the first rank and pipeline stages. The plan lists the transfers of the busiest
// group.
int64_t Plan::busiest_link(StepKind kind) const {
  int64_t most = 0;
  for (const bool centre : {true, false})
    for (int place = 0; place < places(); ++place) {
      const Traffic traffic = traffic_of(transfers, kind, star_of(*this), centre, place);
      most = std::max({most, traffic.in, traffic.out});
    }
  return most;
}

int64_t Plan::busiest_link() const {
  return mean_of_steps(*this, [this](StepKind kind) { return busiest_link(kind); });
}

std::string Plan::sent_text(int digits) const { return owt::sent_text(bytes_per_step(), busiest_link(), digits); }

std::string sent_text(int64_t mean, int64_t busiest, int digits) {
  const auto mega_bytes = [&](int64_t bytes) { return format("{:.{}f}", static_cast<double>(bytes) / 1e6, digits); };
  const std::string text = mega_bytes(mean);
  return text + " MB" +
         (text == mega_bytes(busiest) ? "" : concat(" (mean; the busiest ", mega_bytes(busiest), " MB)"));
}

int64_t Plan::weight_bytes_per_rank(int place) const {
  return at_place(place, [](int64_t, const LayerPlan& layer) { return layer.weight_bytes_on_rank(); });
}

int64_t Plan::velocity_bytes_per_rank(int place) const {
  return at_place(place, [](int64_t, const LayerPlan& layer) { return layer.velocity_bytes_on_rank(); });
}

int64_t Plan::gradient_bytes_per_rank(int place) const {
  return at_place(place, [this](int64_t i, const LayerPlan& layer) {
    int64_t bytes = 0;
    for (size_t p = 0; p < layer.params.size(); ++p)
      if (learns(layer.roles[p]) && (p > 0 || !updates_at_once(i)))
        bytes += layer.most_elements(layer.params[p]) * size_of(gradient_type(i, p));
    return bytes;
  });
}

int64_t Plan::norm_chunks() const {
  int64_t chunks = 0;
  for (const LayerPlan& layer : layers)
    for (size_t p = 0; p < layer.params.size(); ++p)
      if (layer.roles[p] == ParamRole::kTrained)
        chunks += (layer.most_elements(layer.params[p]) + kSquareChunk - 1) / kSquareChunk;
  return chunks * request.norm_sums;
}

// Per parameter: its sums, the first chunk of each sum, its decay and its factor. Two more numbers are independent of
// the parameters.
int64_t Plan::norm_bytes() const {
  return has_norms() ? 8 * ((2 * request.norm_sums + 2) * trained_params() + 2 + norm_chunks()) : 0;
}

int64_t Plan::at_place(int place, const std::function<int64_t(int64_t, const LayerPlan&)>& of_layer) const {
  int64_t most = 0;
  for (int at = place == kEveryPlace ? 0 : place; at < (place == kEveryPlace ? places() : place + 1); ++at) {
    int64_t total = 0;
    for (int64_t i = 0; i < std::ssize(layers); ++i)
      if (layer(i).is_at(at)) total += of_layer(i, layer(i));
    most = std::max(most, total);
  }
  return most;
}

int64_t Plan::copy16_bytes_per_rank(int place) const {
  const bool shares = shares_update();  // learning parameters are then in buckets
  int64_t in_buckets = 0;
  for (const Bucket& bucket : buckets) in_buckets += shares && has_copies16(bucket) ? bucket.elements : 0;
  return 2 * in_buckets + at_place(place, [&](int64_t i, const LayerPlan& layer) {
           int64_t elements = 0;
           for (size_t p = 0; p < layer.params.size(); ++p)
             if (has_copy16(i, p) && !(shares && learns(layer.roles[p])))
               elements += layer.most_elements(layer.params[p]);
           return 2 * elements;
         });
}

int64_t Plan::weight_copy_bytes(int place) const {
  int64_t bytes = 0;
  for (int64_t i = 0; i < std::ssize(layers); ++i)
    for (size_t p = 0; p < layer(i).params.size(); ++p)
      if (layer(i).is_at(place) && layer(i).roles[p] == ParamRole::kTrained)
        bytes += layer(i).params[p].elements() * (4 + (has_copy16(i, p) ? 2 : 0));
  return bytes;
}

}  // namespace owt

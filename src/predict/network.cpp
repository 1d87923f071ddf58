#include "src/predict/network.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/comm/chain.h"
#include "src/predict/bench.h"
#include "src/system/check.h"
#include "src/system/log.h"

namespace owt {
namespace {

bool is_chain(Collective collective) {
  return collective == Collective::kBroadcast || collective == Collective::kReduce || is_message(collective);
}

// Seconds for `bytes` through a link; 0 bytes take no time on any link.
double through(double bytes, double bytes_per_s) { return bytes > 0 ? bytes / bytes_per_s : 0; }

double pairwise(Collective collective, double bytes, const Span& span, const Network& network) {
  const Link &local = network.local, &between = network.between;
  constexpr double kUnlimited = std::numeric_limits<double>::infinity();
  const double g = span.ranks(), l = span.local, m = span.hosts, shared = between.bytes_per_s / span.sharing;
  if (is_chain(collective)) {
    const double across = std::min(shared, network.one_port ? local.bytes_per_s : kUnlimited);  // bandwidth of one rank
    const double slowest = std::min(l > 1 ? local.bytes_per_s : kUnlimited, m > 1 ? across : kUnlimited);
    const double chunk = std::min(bytes, static_cast<double>(chain_chunk(static_cast<int64_t>(bytes), span.ranks())));
    const double first = m * (l - 1) * local.latency_s + (m - 1) * between.latency_s +
                         through(m * (l - 1) * chunk, local.bytes_per_s) + through((m - 1) * chunk, across);
    return first + (bytes - chunk) / slowest;
  }
  const double latency = (l - 1) * local.latency_s + (g - l) * between.latency_s;
  const double of_port = (network.one_port ? g : l) - 1;  // ranks reached through the local link
  const double once =
      latency + std::max(through(of_port * bytes / g, local.bytes_per_s), through(l * (g - l) * bytes / g, shared));
  return collective == Collective::kAllReduce ? 2 * once : once;
}

double hierarchical(Collective collective, double bytes, const Span& span, const Link& local, const Link& between) {
  const double g = span.ranks(), l = span.local, m = span.hosts, shared = between.bytes_per_s / span.sharing;
  const double trips = is_message(collective) ? 1 : 2;
  const double latency = (l > 1 ? local.latency_s : 0) + trips * between.latency_s * std::log2(m);
  double inside = 0, outside = 0;
  switch (collective) {
    case Collective::kAllReduce:
      inside = 2 * (l - 1) / l * bytes;
      outside = 2 * (m - 1) / m * bytes;
      break;
    case Collective::kAllGather:
    case Collective::kReduceScatter:
      inside = l > 1 ? (g - 1) / g * bytes : 0;
      outside = (m - 1) / m * bytes;
      break;
    case Collective::kAllToAll:
      inside = (l - 1) / g * bytes;
      outside = l * (g - l) / g * bytes;
      break;
    case Collective::kBroadcast:
    case Collective::kReduce:
    case Collective::kSend:
    case Collective::kReceive:
      inside = l > 1 ? bytes : 0;
      outside = m > 1 ? bytes : 0;
      break;
  }
  return latency + std::max(through(inside, local.bytes_per_s), through(outside, shared));
}

std::string link_text(const Link& link) {
  const double rate = link.bytes_per_s / 1e6;
  return format("{:.3g} us, {} MB/s", link.latency_s * 1e6,
                rate < 1000 ? format("{:.4g}", rate) : format("{:.0f}", rate));
}

}  // namespace

void TimeTable::add(int64_t bytes, double seconds) {
  OWT_CHECK(bytes > 0 && seconds > 0);
  points_[bytes] = seconds;
}

double TimeTable::seconds(double bytes) const {
  OWT_CHECK(!points_.empty());
  const auto& [least, least_time] = *points_.begin();
  const auto& [most, most_time] = *points_.rbegin();
  if (bytes <= static_cast<double>(least)) return least_time;
  if (bytes >= static_cast<double>(most)) return most_time * bytes / static_cast<double>(most);
  const auto above = points_.upper_bound(static_cast<int64_t>(bytes));
  const auto below = std::prev(above);
  const double x0 = std::log(static_cast<double>(below->first)), x1 = std::log(static_cast<double>(above->first));
  const double part = (std::log(bytes) - x0) / (x1 - x0);
  return std::exp(std::log(below->second) * (1 - part) + std::log(above->second) * part);
}

Span Network::consecutive(int count) const {
  Span span;
  span.local = std::min(count, ranks_per_host);
  span.hosts = (count + ranks_per_host - 1) / ranks_per_host;
  span.sharing = 1;  // a group on several hosts uses all ranks of each
  return span;
}

Span Network::across(int count) const {
  OWT_CHECK(count >= 1 && ranks() % count == 0, count, " groups of ", ranks(), " ranks");
  const int stride = ranks() / count;  // distance of two ranks of the group
  Span span;
  span.local = std::min(count, std::max(1, ranks_per_host / stride));
  span.hosts = (count + span.local - 1) / span.local;
  span.sharing = std::max(1, ranks_per_host / span.local);
  return span;
}

double Network::star_seconds(double bytes, const Span& span) const {
  if (const auto gather = measured.find(Collective::kAllGather); gather != measured.end() && !gather->second.empty())
    return seconds(Collective::kAllGather, bytes * span.ranks(), span);
  const int far = span.ranks() - span.local;
  const double near_s = (span.local - 1) * seconds(Collective::kSend, bytes, {2, 1, 1});
  const double far_s = far > 0 ? far * seconds(Collective::kSend, bytes, {1, 2, span.sharing}) : 0;
  return one_port ? near_s + far_s : std::max(near_s, far_s);
}

double Network::calculated_seconds(Collective collective, double bytes, const Span& span) const {
  if (algorithm == Algorithm::kHierarchical) return hierarchical(collective, bytes, span, local, between);
  const bool is_star = collective == Collective::kBroadcast || collective == Collective::kReduce;
  if (algorithm == Algorithm::kDirect && is_star) return star_seconds(bytes, span);
  return pairwise(collective, bytes, span, *this);
}

double Network::seconds(Collective collective, double bytes, const Span& span) const {
  if (span.ranks() <= 1 || bytes <= 0) return 0;
  if (is_message(collective) && span.ranks() > 2) return star_seconds(bytes, span);
  const bool timed = measured.contains(Collective::kSend);
  // A broadcast to one rank.
  if (is_message(collective) && !timed && !measured.empty()) collective = Collective::kBroadcast;
  if (collective == Collective::kReceive) collective = Collective::kSend;
  const auto table = measured.find(collective);
  const bool same_kind = hosts == 1 || span.hosts > 1;
  if (table == measured.end() || table->second.empty() || !same_kind)
    return calculated_seconds(collective, bytes, span);
  const TimeTable& times = table->second;
  // The bytes through the slowest link are proportional to (n-1)/n, with n ranks or, between hosts, n hosts.
  const auto passing = [](int n) { return n > 1 ? static_cast<double>(n - 1) / n : 1; };
  const int ends = hosts == 1 ? span.ranks() : span.hosts;
  const int measured_ends = hosts > 1 && measured_hosts > 1 ? measured_hosts : measured_ranks;
  const double share = is_chain(collective) ? 1 : passing(ends) / passing(measured_ends);
  const double messages =
      is_message(collective) ? 1 : static_cast<double>(span.ranks() - 1) / std::max(measured_ranks - 1, 1);
  const double least = times.least_seconds();
  return least * messages + std::max(0.0, times.seconds(bytes * share) - least);
}

std::string Network::text() const {
  const std::string workers = format("{} worker{}", ranks_per_host, ranks_per_host == 1 ? "" : "s");
  const std::string where =
      hosts == 1 ? concat("1 host with ", workers) : format("{} hosts with {} each", hosts, workers);
  std::string links;
  if (!measured.empty()) links = format("measured between {} workers", measured_ranks);
  const bool formulas = measured.empty() || (hosts > 1 && ranks_per_host > 1);
  if (formulas && ranks_per_host > 1)
    links += format("{}within a host {}", links.empty() ? "" : "; ", link_text(local));
  if (measured.empty() && hosts > 1)
    links += format("{}between hosts {}", links.empty() ? "" : "; ", link_text(between));
  return format("{}: {}{}", where, links.empty() ? "no links" : links,
                overlaps ? "" : "; collectives do not overlap computation");
}

}  // namespace owt

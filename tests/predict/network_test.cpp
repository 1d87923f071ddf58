#include "src/predict/network.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "src/comm/threads.h"
#include "src/predict/bench.h"
#include "src/predict/measure_network.h"

namespace owt::network_test {
namespace {

using enum Collective;

Network one_host(int ranks, double latency_s, double bytes_per_s) {
  Network network;
  network.ranks_per_host = ranks;
  network.local = {latency_s, bytes_per_s};
  return network;
}

// Local links of 1 s and 1000 B/s, between hosts 10 s and 100 B/s.
Network two_levels(int hosts, int ranks_per_host) {
  Network network = one_host(ranks_per_host, 1, 1000);
  network.hosts = hosts;
  network.between = {10, 100};
  return network;
}

TEST(Network, OnOneHostTimesAreAlphaPlusSentBytesOverBeta) {
  // 4 ranks, 10 us, 1 GB/s; 40 MB: a ring sends 30 MB, twice for all_reduce; three messages, twice.
  const Network network = one_host(4, 10e-6, 1e9);
  const Span all = network.consecutive(4);
  EXPECT_DOUBLE_EQ(network.seconds(kAllReduce, 40e6, all), 60e-6 + 60e-3);
  for (const Collective collective : {kAllGather, kReduceScatter, kAllToAll})
    EXPECT_DOUBLE_EQ(network.seconds(collective, 40e6, all), 30e-6 + 30e-3);
  for (const Collective collective : {kBroadcast, kReduce})
    EXPECT_DOUBLE_EQ(network.seconds(collective, 40e6, all), 30e-6 + (40e6 + 2 * 524288) / 1e9);  // first chunks
}

TEST(Network, AStarTakesAsLongAsTheLinksOfOneRankNeedForAllMessages) {
  for (const auto algorithm : {Network::Algorithm::kPairwise, Network::Algorithm::kHierarchical})
    for (const Collective collective : {kSend, kReceive}) {
      Network network = one_host(4, 1, 1000);
      network.algorithm = algorithm;
      EXPECT_DOUBLE_EQ(network.seconds(collective, 500, network.consecutive(2)), 1 + 0.5);
      EXPECT_DOUBLE_EQ(network.seconds(collective, 500, network.consecutive(4)), 3 * (1 + 0.5));
      network = two_levels(3, 4);
      network.algorithm = algorithm;
      EXPECT_DOUBLE_EQ(network.seconds(collective, 500, network.consecutive(4)), 3 * (1 + 0.5));
      EXPECT_DOUBLE_EQ(network.seconds(collective, 500, network.consecutive(12)), 8 * (10 + 5));
    }
  Network measured = one_host(4, 1, 1000);
  measured.measured_ranks = 2;
  measured.measured[kSend].add(1000, 2);
  EXPECT_DOUBLE_EQ(measured.seconds(kReceive, 1000, measured.consecutive(4)), 3 * 2);
  // Each rank receives three tensors from the four ranks.
  measured.measured_ranks = 4;
  measured.measured[kAllGather].add(4000, 7);
  EXPECT_DOUBLE_EQ(measured.seconds(kReceive, 1000, measured.consecutive(4)), 7);
  EXPECT_DOUBLE_EQ(measured.seconds(kSend, 1000, measured.consecutive(2)), 2);
}

TEST(Network, DirectlyOneRankSendsToEachOfTheOthers) {
  Network network = two_levels(2, 4);
  network.algorithm = Network::Algorithm::kDirect;
  const Span all = network.consecutive(8), host = network.consecutive(4);
  for (const Collective collective : {kBroadcast, kReduce}) {
    EXPECT_DOUBLE_EQ(network.seconds(collective, 500, host), 3 * (1 + 0.5));
    // in parallel to the collectives in the host
    EXPECT_DOUBLE_EQ(network.seconds(collective, 500, all), 4 * (10 + 5));
  }
  // The others are as between every two ranks.
  const Network pairwise = two_levels(2, 4);
  for (const Collective collective : {kAllReduce, kAllGather, kReduceScatter, kAllToAll, kSend})
    EXPECT_DOUBLE_EQ(network.seconds(collective, 500, all), pairwise.seconds(collective, 500, all));
}

TEST(Network, OnePortCarriesWhatLeavesTheHostAsWell) {
  Network network = two_levels(2, 4);
  network.between.bytes_per_s = 8000;  // twice the rate of the ports of a host's ranks
  network.one_port = true;
  const Span all = network.consecutive(8);
  // Seven eighths pass through a port of 1000 B/s; before it was three eighths.
  EXPECT_DOUBLE_EQ(network.seconds(kAllGather, 8000, all), 3 * 1 + 4 * 10 + 7);
  EXPECT_DOUBLE_EQ(network.seconds(kSend, 8000, {1, 2, 1}), 10 + 8);
  network.algorithm = Network::Algorithm::kDirect;
  EXPECT_DOUBLE_EQ(network.seconds(kBroadcast, 1000, all), 3 * (1 + 1) + 4 * (10 + 1));
  network.one_port = false;
  EXPECT_DOUBLE_EQ(network.seconds(kBroadcast, 1000, all), 4 * (10 + 0.125));
}

TEST(Network, AGroupOfOneNeedsNoTime) {
  for (const Collective collective : all_collectives()) EXPECT_EQ(two_levels(2, 2).seconds(collective, 1e6, Span{}), 0);
}

TEST(Network, GroupsLieOnHostsInRankOrder) {
  const Network network = two_levels(4, 8);
  const auto is = [](const Span& span, int local, int hosts, int sharing) {
    EXPECT_EQ(span.local, local);
    EXPECT_EQ(span.hosts, hosts);
    EXPECT_EQ(span.sharing, sharing);
  };
  is(network.consecutive(32), 8, 4, 1);
  is(network.consecutive(8), 8, 1, 1);
  is(network.consecutive(2), 2, 1, 1);
  is(network.consecutive(16), 8, 2, 1);
  is(network.across(4), 1, 4, 8);   // model groups fill a host: every rank's replicas are on other hosts
  is(network.across(16), 4, 4, 2);  // model groups of 2
  is(network.across(2), 1, 2, 8);   // model groups of 16
  is(network.across(32), 8, 4, 1);  // groups of 1: all ranks
}

// Counts the hosts of ranks begin, begin + stride, ...; `stride` groups like this one if they are interleaved.
Span counted_span(const Network& network, int count, int stride) {
  std::map<int, int> on_host;
  for (int i = 0; i < count; ++i) ++on_host[i * stride / network.ranks_per_host];
  std::set<int> groups_on_first_host;
  for (int rank = 0; rank < network.ranks_per_host && stride > 1; ++rank) groups_on_first_host.insert(rank % stride);
  return {on_host[0], static_cast<int>(on_host.size()), std::max(1, static_cast<int>(groups_on_first_host.size()))};
}

// The formulas of network.h, once more.
double formula(const Network& network, Collective collective, double bytes, const Span& span) {
  const double l = span.local, m = span.hosts, g = l * m, a = network.local.latency_s, b = network.local.bytes_per_s,
               A = network.between.latency_s, B = network.between.bytes_per_s / span.sharing;
  const bool chain = collective == kBroadcast || collective == kReduce || collective == kSend;
  if (collective == kSend && g > 2)  // a star
    return std::max(l > 1 ? (l - 1) * formula(network, kSend, bytes, {2, 1, 1}) : 0,
                    m > 1 ? (g - l) * formula(network, kSend, bytes, {1, 2, span.sharing}) : 0);
  if (network.algorithm == Network::Algorithm::kPairwise) {
    if (chain) {
      const double chunk = std::min(bytes, 32768.0);  // one chunk of this size
      return m * (l - 1) * (a + chunk / b) + (m - 1) * (A + chunk / B) +
             (bytes - chunk) / std::min(l > 1 ? b : 1e300, m > 1 ? B : 1e300);
    }
    const double once = (l - 1) * a + (g - l) * A + std::max((l - 1) * bytes / g / b, l * (g - l) * bytes / g / B);
    return collective == kAllReduce ? 2 * once : once;
  }
  double latency = (collective == kSend ? 1 : 2) * A * std::log2(m);
  if (l > 1) latency += a;
  if (chain) return latency + std::max(l > 1 ? bytes / b : 0, m > 1 ? bytes / B : 0);
  if (collective == kAllReduce) return latency + std::max(2 * (l - 1) / l * bytes / b, 2 * (m - 1) / m * bytes / B);
  if (collective == kAllToAll) return latency + std::max((l - 1) / g * bytes / b, l * (g - l) / g * bytes / B);
  return latency + std::max(l > 1 ? (g - 1) / g * bytes / b : 0, (m - 1) / m * bytes / B);
}

TEST(Network, TimesAreThoseOfTheFormulasWhereverTheRanksOfAGroupLie) {
  for (const int hosts : {1, 2, 3, 4, 8})
    for (const int ranks_per_host : {1, 2, 4, 6}) {
      Network network = two_levels(hosts, ranks_per_host);
      for (int count = 2; count <= network.ranks(); ++count)
        for (const bool consecutive : {true, false}) {
          if (network.ranks() % count != 0) continue;
          const int stride = consecutive ? 1 : network.ranks() / count;
          const Span counted = counted_span(network, count, stride);
          if (counted.local * counted.hosts != count) continue;  // different numbers on the hosts
          const Span span = consecutive ? network.consecutive(count) : network.across(count);
          SCOPED_TRACE(testing::Message() << count << (consecutive ? " consecutive" : " across") << " of " << hosts
                                          << " hosts of " << ranks_per_host);
          EXPECT_EQ(span.local, counted.local);
          EXPECT_EQ(span.hosts, counted.hosts);
          EXPECT_EQ(span.sharing, counted.sharing);
          EXPECT_EQ(span.ranks(), count);
          for (const Network::Algorithm algorithm : {Network::Algorithm::kPairwise, Network::Algorithm::kHierarchical})
            for (const Collective collective : all_collectives())
              for (const double bytes : {1.0, 1000.0, 54321.0}) {
                network.algorithm = algorithm;
                const double wanted = formula(network, collective, bytes, counted);
                EXPECT_NEAR(network.seconds(collective, bytes, span), wanted, 1e-12 * wanted) << name_of(collective);
              }
        }
    }
}

TEST(Network, PairwiseMessagesShareTheLinkOfTheirHost) {
  const Network network = two_levels(2, 2);  // 4 ranks, 400 bytes: 100 for each pair
  const Span all = network.consecutive(4);
  // One message inside, two outside. Inside 100 bytes of each; between 2 ranks x 2 others x 100.
  EXPECT_DOUBLE_EQ(network.seconds(kAllGather, 400, all), 1 + 2 * 10 + 400.0 / 100);
  EXPECT_DOUBLE_EQ(network.seconds(kAllReduce, 400, all), 2 * (1 + 2 * 10 + 400.0 / 100));
  // The chain 0 1 | 2 3 crosses once; so few bytes go from rank to rank in one piece.
  EXPECT_DOUBLE_EQ(network.seconds(kBroadcast, 400, all), 2 * (1 + 400.0 / 1000) + 10 + 400.0 / 100);
  // Inside a host only.
  EXPECT_DOUBLE_EQ(network.seconds(kAllGather, 400, network.consecutive(2)), 1 + 200.0 / 1000);
  // Ranks 0 and 2, while ranks 1 and 3 do the same: each pair has half of the link.
  EXPECT_DOUBLE_EQ(network.seconds(kAllGather, 400, network.across(2)), 10 + 200.0 / 50);
}

TEST(Network, AHierarchySendsEachByteOnceBetweenHosts) {
  Network network = two_levels(4, 2);
  network.algorithm = Network::Algorithm::kHierarchical;
  const Span all = network.consecutive(8);
  const double latency = 1 + 2 * 10 * 2;  // log2 of 4 hosts
  EXPECT_DOUBLE_EQ(network.seconds(kAllReduce, 800, all), latency + 2 * 0.75 * 800 / 100);
  EXPECT_DOUBLE_EQ(network.seconds(kAllGather, 800, all), latency + 0.75 * 800 / 100);
  EXPECT_DOUBLE_EQ(network.seconds(kReduceScatter, 800, all), latency + 0.75 * 800 / 100);
  EXPECT_DOUBLE_EQ(network.seconds(kAllToAll, 800, all), latency + 2 * 6.0 / 8 * 800 / 100);
  EXPECT_DOUBLE_EQ(network.seconds(kBroadcast, 800, all), latency + 800.0 / 100);
  // Links between hosts so fast that those inside decide.
  network.between.bytes_per_s = 1e9;
  EXPECT_DOUBLE_EQ(network.seconds(kAllReduce, 800, all), latency + 2 * 0.5 * 800 / 1000);
}

// NVLink at 370 GB/s and 12 us, 8 GPUs, f32 gradients of AlexNet: 2 * 7/8 * 244.4 MB on the way.
TEST(Network, EightGpusSumAlexNetsGradientsInAMillisecond) {
  Network network = one_host(8, 12e-6, 370e9);
  network.algorithm = Network::Algorithm::kHierarchical;
  EXPECT_NEAR(network.seconds(kAllReduce, 244.4e6, network.consecutive(8)), 12e-6 + 427.7e6 / 370e9, 1e-7);
}

TEST(Network, MoreBandwidthAndLessLatencyAreNeverSlower) {
  for (const auto algorithm : {Network::Algorithm::kPairwise, Network::Algorithm::kHierarchical})
    for (const Collective collective : all_collectives())
      for (const double bytes : {1.0, 1e4, 1e8})
        for (const int count : {2, 4, 8, 16})
          for (const bool consecutive : {true, false}) {
            Network slow = two_levels(4, 4);
            slow.algorithm = algorithm;
            const Span span = consecutive ? slow.consecutive(count) : slow.across(count);
            const double before = slow.seconds(collective, bytes, span);
            for (double Link::*field : {&Link::latency_s, &Link::bytes_per_s})
              for (Link Network::*link : {&Network::local, &Network::between}) {
                Network better = slow;
                better.*link.*field *= field == &Link::bytes_per_s ? 2 : 0.5;
                EXPECT_LE(better.seconds(collective, bytes, span), before);
              }
            EXPECT_LT(before, slow.seconds(collective, 2 * bytes, span));
          }
}

TEST(TimeTable, InterpolatesOnLogarithms) {
  TimeTable table;
  table.add(1600, 8);
  table.add(100, 2);
  EXPECT_DOUBLE_EQ(table.seconds(100), 2);
  EXPECT_DOUBLE_EQ(table.seconds(1600), 8);
  EXPECT_NEAR(table.seconds(400), 4, 1e-12);  // halfway on both
  EXPECT_DOUBLE_EQ(table.seconds(1), 2);
  EXPECT_DOUBLE_EQ(table.seconds(3200), 16);
  EXPECT_DOUBLE_EQ(table.least_seconds(), 2);
}

TEST(Network, MeasuredTimesTakeThePlaceOfFormulas) {
  Network network = measured_network({{.collective = kAllReduce, .bytes = 1000, .seconds = 2},
                                      {.collective = kAllReduce, .bytes = 2000, .seconds = 4, .overlaps = true},
                                      {.collective = kAllReduce, .bytes = 3000, .seconds = 6}},
                                     4, 1);
  network.local = {1, 1};
  EXPECT_TRUE(network.overlaps);
  EXPECT_EQ(network.ranks(), 4);
  EXPECT_DOUBLE_EQ(network.seconds(kAllReduce, 3000, network.consecutive(4)), 6);
  EXPECT_DOUBLE_EQ(network.seconds(kAllReduce, 6000, network.consecutive(4)), 12);
  // Two of the four: a third of the messages; 1/2 of the bytes pass instead of 3/4, as of 2000 among four.
  const double two = network.seconds(kAllReduce, 3000, network.consecutive(2));
  EXPECT_NEAR(two, 2.0 / 3 + network.measured[kAllReduce].seconds(2000) - 2, 1e-12);
  // What was not measured is calculated: 3 messages, 3/4 of the bytes.
  EXPECT_DOUBLE_EQ(network.seconds(kAllGather, 4000, network.consecutive(4)), 3 + 3000);
}

TEST(Network, AMessageTakesItsLatencyAndItsBytesWhereverItGoes) {
  const Span in_a_host{2, 1, 1}, between_hosts{1, 2, 1}, two_at_a_time{1, 2, 2};
  for (const auto algorithm : {Network::Algorithm::kPairwise, Network::Algorithm::kHierarchical})
    for (const Collective end : {kSend, kReceive}) {
      Network network = two_levels(2, 2);
      network.algorithm = algorithm;
      EXPECT_DOUBLE_EQ(network.seconds(end, 5000, in_a_host), 1 + 5);
      EXPECT_DOUBLE_EQ(network.seconds(end, 5000, between_hosts), 10 + 50);
      EXPECT_DOUBLE_EQ(network.seconds(end, 5000, two_at_a_time), 10 + 100);
    }
}

TEST(Network, AMessageTakesAsLongAsWasMeasuredOrAsABroadcastToOneRank) {
  std::vector<CollectiveTime> times{{.collective = kBroadcast, .bytes = 1000, .seconds = 3},
                                    {.collective = kBroadcast, .bytes = 2000, .seconds = 5}};
  const Network without = measured_network(times, 4, 1);
  EXPECT_DOUBLE_EQ(without.seconds(kSend, 2000, without.consecutive(2)),
                   without.seconds(kBroadcast, 2000, without.consecutive(2)));
  times.push_back({.collective = kSend, .bytes = 1000, .seconds = 2});
  times.push_back({.collective = kSend, .bytes = 2000, .seconds = 4});
  const Network with = measured_network(times, 4, 1);
  for (const Collective end : {kSend, kReceive}) EXPECT_DOUBLE_EQ(with.seconds(end, 2000, with.consecutive(2)), 4);
}

TEST(Network, ASmallSizeMeasuredSlowerThanALargeOneIsTakenToBeAsFast) {
  const Network network = measured_network({{.collective = kAllGather, .bytes = 100, .seconds = 9},
                                            {.collective = kAllGather, .bytes = 1000, .seconds = 2},
                                            {.collective = kAllGather, .bytes = 10000, .seconds = 5}},
                                           2, 1);
  EXPECT_DOUBLE_EQ(network.seconds(kAllGather, 100, network.consecutive(2)), 2);
  EXPECT_DOUBLE_EQ(network.seconds(kAllGather, 10000, network.consecutive(2)), 5);
}

TEST(Network, TimesMeasuredBetweenHostsAreNotForGroupsInAHost) {
  Network network = measured_network({{.collective = kAllGather, .bytes = 1000, .seconds = 5}}, 4, 2);
  EXPECT_EQ(network.hosts, 2);
  EXPECT_EQ(network.ranks_per_host, 2);
  network.local = {1, 1000};
  EXPECT_DOUBLE_EQ(network.seconds(kAllGather, 1000, network.consecutive(4)), 5);
  EXPECT_DOUBLE_EQ(network.seconds(kAllGather, 1000, network.consecutive(2)), 1 + 0.5);
}

TEST(MeasureNetwork, TimesEveryCollectiveEquallyOnAllRanks) {
  std::vector<std::string> seen(3);
  run_ranks(3, 1, [&](Communicator& comm) {
    const Network network = measure_network(comm, Device::kCpu, 0.2);
    EXPECT_EQ(network.ranks(), 3);
    EXPECT_EQ(network.measured_ranks, 3);
    EXPECT_FALSE(network.overlaps);  // threads wait
    std::string& text = seen[static_cast<size_t>(comm.rank())];
    for (const Collective collective : all_collectives()) {
      if (is_message(collective)) continue;
      EXPECT_GE(network.measured.at(collective).points().size(), 3u);
      text += concat(network.seconds(collective, 5e5, network.consecutive(3)), " ");
    }
  });
  EXPECT_EQ(seen[1], seen[0]);
  EXPECT_EQ(seen[2], seen[0]);
}

TEST(MeasureNetwork, OneRankHasNothingToMeasure) {
  run_ranks(1, 1, [](Communicator& comm) { EXPECT_TRUE(measure_network(comm).measured.empty()); });
}

}  // namespace
}  // namespace owt::network_test

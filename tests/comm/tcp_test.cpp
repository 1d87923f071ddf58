#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <numeric>
#include <random>
#include <thread>

#include "src/comm/tcp_connection.h"
#include "src/comm/tcp_meeting.h"
#include "src/system/check.h"
#include "src/system/sockets.h"
#include "src/system/texts.h"
#include "tests/support/environment.h"
#include "tests/support/message_of.h"

namespace owt::tcp_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using Bytes = std::vector<std::byte>;
using Transfer = TcpConnection::Transfer;

Bytes counted(size_t count, int first) {
  Bytes bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(static_cast<size_t>(first) + i * 7 + i / 256);
  return bytes;
}

Transfer transfer_of(TcpConnection& connection, Bytes& memory, int tag) {
  return {&connection, memory.data(), std::ssize(memory), tag};
}

// Two ends of a connection. The system would say when they are ready.
struct Pair {
  Pair() {
    std::array<int, 2> ends{};
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) != 0) fail("no pair of sockets");
    one = std::make_unique<TcpConnection>(ends[0], "rank 1");
    other = std::make_unique<TcpConnection>(ends[1], "rank 0");
  }
  void move() const {
    for (TcpConnection* end : {one.get(), other.get()}) end->set_ready(true, true), end->move();
  }
  void until_ended(const Transfer& transfer) const {
    while (!transfer.ended && one->open() && other->open()) move();
  }
  std::unique_ptr<TcpConnection> one, other;
};

// Sizes around the limits of frames and pieces.
TEST(TcpConnection, MovesTransfersOfAnySizeWhicheverEndBegins) {
  for (const bool wanted_first : {true, false})
    for (const size_t size : {0, 1, 65'535, 65'536, 65'537, 131'072, 131'073, 1'000'003, 4 << 20}) {
      const Pair pair;
      Bytes sent = counted(size, 3), got(size);
      Transfer send = transfer_of(*pair.one, sent, 5), receive = transfer_of(*pair.other, got, 5);
      if (wanted_first) pair.other->receive(receive);
      pair.one->send(send);
      for (int i = 0; i < 3; ++i) pair.move();
      if (!wanted_first) pair.other->receive(receive);
      pair.until_ended(receive);
      pair.until_ended(send);
      EXPECT_EQ(receive.size, static_cast<int64_t>(size));
      EXPECT_TRUE(sent == got) << size << (wanted_first ? ", wanted first" : "");
    }
}

TEST(TcpConnection, KeepsTheOrderOfATagAndLetsOthersPass) {
  const Pair pair;
  Bytes large = counted(3 << 20, 1), small = counted(10, 2), large_got(large.size()), small_got(10), again_got(10);
  Bytes again = counted(10, 9);
  Transfer first = transfer_of(*pair.one, large, 1), second = transfer_of(*pair.one, small, 1),
           beside = transfer_of(*pair.one, again, 2);
  for (Transfer* one : {&first, &second, &beside}) pair.one->send(*one);
  Transfer get_beside = transfer_of(*pair.other, again_got, 2);
  pair.other->receive(get_beside);
  pair.until_ended(get_beside);
  EXPECT_TRUE(again_got == again);
  EXPECT_FALSE(first.ended) << "nobody has memory for it";
  Transfer get_first = transfer_of(*pair.other, large_got, 1), get_second = transfer_of(*pair.other, small_got, 1);
  pair.other->receive(get_first);
  pair.other->receive(get_second);
  pair.until_ended(get_first);
  EXPECT_TRUE(get_second.ended);
  EXPECT_TRUE(large_got == large);
  EXPECT_TRUE(small_got == small);
}

TEST(TcpConnection, TellsTheReceiverOfAnotherSize) {
  for (const size_t scale : {1, 100'000}) {
    const Pair pair;
    Bytes two = counted(2 * scale, 1), three = counted(3 * scale, 1), room_for_three(3 * scale),
          room_for_two(2 * scale);
    Transfer send_two = transfer_of(*pair.one, two, 1), send_three = transfer_of(*pair.one, three, 1);
    Transfer get_two = transfer_of(*pair.other, room_for_three, 1),
             too_small = transfer_of(*pair.other, room_for_two, 1);
    pair.one->send(send_two);
    pair.one->send(send_three);
    pair.other->receive(get_two);
    pair.other->receive(too_small);
    pair.until_ended(get_two);
    pair.until_ended(too_small);
    EXPECT_EQ(get_two.size, static_cast<int64_t>(2 * scale));
    EXPECT_EQ(too_small.size, -1);
  }
}

TEST(TcpConnection, EndsWhereTheOtherProcessHasEnded) {
  Pair pair;
  Bytes memory(10);
  Transfer transfer = transfer_of(*pair.one, memory, 1);
  pair.one->receive(transfer);
  pair.other.reset();
  pair.one->move();
  EXPECT_FALSE(pair.one->open());
  EXPECT_THAT(pair.one->why_closed(), HasSubstr("rank 1 has ended"));
}

std::string header(uint32_t kind, int32_t tag, uint64_t number, int64_t bytes) {
  const auto word = [](auto value) { return std::string(reinterpret_cast<const char*>(&value), sizeof value); };
  return word(kind) + word(tag) + word(number) + word(bytes);
}

constexpr uint32_t kWhole = 0x6f777601, kOffer = kWhole + 1, kAccept = kWhole + 2, kPiece = kWhole + 3;

// The system reports bytes and the end at once, and then nothing more.
TEST(TcpConnection, EndsWhereTheOtherProcessHasEndedWithinAFrame) {
  std::array<int, 2> ends{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
  TcpConnection connection(ends[0], "rank 1");
  const std::string half = header(kWhole, 1, 0, 1000) + std::string(500, 'x');
  ASSERT_EQ(write(ends[1], half.data(), half.size()), std::ssize(half));
  close(ends[1]);
  connection.set_ready(true, true, /*ends=*/true);
  connection.move();
  EXPECT_FALSE(connection.open());
}

TEST(TcpConnection, RefusesWhatIsNoFrame) {
  for (const std::string& said :
       {std::string("GET / HTTP/1.1\r\nHost: node1\r\n\r\n"), header(kWhole, 1, 0, 1 << 30), header(kWhole, 1, 0, -1),
        header(kOffer, 1, 1, 10), header(kOffer, 1, 1, int64_t{1} << 40), header(kAccept, 1, 0, 7),
        header(kPiece, 1, 7, 100), header(kPiece, 1, 7, -5), header(kPiece + 1, 1, 1, 1)}) {
    std::array<int, 2> ends{};
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
    TcpConnection connection(ends[0], "rank 1");
    ASSERT_EQ(write(ends[1], said.data(), said.size()), std::ssize(said));
    connection.move();
    EXPECT_FALSE(connection.open());
    EXPECT_THAT(connection.why_closed(), HasSubstr("it sent "));
    close(ends[1]);
  }
}

// The processes of a launch as threads, each with what it says and what comes of it.
struct Meetings {
  explicit Meetings(int ranks)
      : listener(listen_on("127.0.0.1", 0)),
        inherited("OWT_LAUNCH_SOCKET", std::to_string(dup(listener.socket)).c_str()),
        by_rank(static_cast<size_t>(ranks)) {}
  ~Meetings() {
    close(listener.socket);
    for (const TcpMeeting& one : by_rank)
      for (const int socket : one.sockets)
        if (socket >= 0) close(socket);
  }

  ProcessLaunch launch(int rank, int ranks) const {
    ProcessLaunch process;
    process.rank = rank;
    process.ranks = ranks;
    process.by = "a test";
    process.address = "127.0.0.1";
    process.port = listener.port;
    return process;
  }
  int ranks() const { return static_cast<int>(by_rank.size()); }

  // Runs these ranks; the errors by rank.
  std::vector<std::string> meet(const std::vector<int>& who, double seconds) {
    std::vector<std::string> errors(by_rank.size());
    std::vector<std::thread> threads;
    for (const int rank : who)
      threads.emplace_back([&, rank] {
        const auto r = static_cast<size_t>(rank);
        try {
          by_rank[r] = meet_over_tcp(launch(rank, ranks()), concat("text of ", rank), seconds);
        } catch (const Error& e) {
          errors[r] = e.what();
        }
      });
    for (std::thread& thread : threads) thread.join();
    return errors;
  }

  const Listener listener;
  const Variable inherited;  // rank 0 inherits a copy of it
  std::vector<TcpMeeting> by_rank;
};

TEST(TcpMeeting, ConnectsEveryPairAndGathersTheTexts) {
  Meetings all(4);
  for (const std::string& error : all.meet({0, 1, 2, 3}, 60)) EXPECT_EQ(error, "");
  for (size_t r = 0; r < 4; ++r)
    for (size_t other = 0; other < 4; ++other) {
      EXPECT_EQ(all.by_rank[r].texts[other], concat("text of ", other));
      if (other == r) continue;
      const char said = static_cast<char>('a' + r);
      ASSERT_EQ(write(all.by_rank[r].sockets[other], &said, 1), 1);
    }
  for (size_t r = 0; r < 4; ++r)
    for (size_t other = 0; other < 4; ++other) {
      if (other == r) continue;
      char heard = 0;
      while (read(all.by_rank[r].sockets[other], &heard, 1) < 0) std::this_thread::yield();
      EXPECT_EQ(heard, static_cast<char>('a' + other));
    }
}

TEST(TcpMeeting, SaysWhereRank0IsMissing) {
  ProcessLaunch process = Meetings(2).launch(1, 2);
  const std::string told = message_of([&] { meet_over_tcp(process, "", 0.1); });
  EXPECT_THAT(told, AllOf(HasSubstr("rank 1 on "), HasSubstr("has not reached rank 0 at 127.0.0.1 port ")));
  process.address = "no-such-host.invalid";
  EXPECT_THAT(message_of([&] { meet_over_tcp(process, "", 0.1); }), HasSubstr("no address of 'no-such-host.invalid'"));
}

constexpr uint32_t kJoin = 0x6f777501;

// What rank 0 answers to a message; empty: it closes the connection.
std::string answer_to(const Meetings& all, const Message& message) {
  MessageConnection stranger = connect_to("127.0.0.1", all.listener.port, std::chrono::seconds(10));
  stranger.send(message);
  std::string answer;
  while (stranger.open() && answer.empty()) {
    wait_readable({stranger.socket()}, std::chrono::milliseconds(100));
    stranger.receive([&](const Message& told) { answer = told.text; });
  }
  return answer;
}

// Joins; false: rank 0 has ended.
bool joins(MessageConnection& guest, const Message& join) {
  guest.send(join);
  for (bool joined = false; guest.open();) {
    guest.receive([&](const Message&) { joined = true; });
    if (joined) return true;
  }
  return false;
}

TEST(TcpMeeting, SaysWhoIsMissing) {
  Meetings all(4);
  std::vector<std::string> errors;
  std::jthread rank_0([&] { errors = all.meet({0}, 0.5); });
  MessageConnection guest = connect_to("127.0.0.1", all.listener.port, std::chrono::seconds(10));
  const bool joined = joins(guest, {kJoin, 2, packed({"1", "4", "7 80 127.0.0.1", "elsewhere", ""})});
  rank_0.join();
  EXPECT_THAT(errors[0], AllOf(HasSubstr("ranks that have not connected to rank 0 (127.0.0.1 port "),
                               HasSubstr(joined ? ": 1, 3; " : ": 1, 2, 3; ")));
}

TEST(TcpMeeting, RefusesStrangersAndGoesOn) {
  Meetings all(2);
  const auto joining = [](const char* version, const char* ranks) {
    return packed({version, ranks, "7 80 127.0.0.1", "elsewhere", ""});
  };
  std::vector<std::string> errors;
  std::jthread rank_0([&] { errors = all.meet({0}, 60); });
  std::minstd_rand random(1);
  for (int i = 0; i < 20; ++i) {
    std::string noise(static_cast<size_t>(1 + i * 50), ' ');
    for (char& c : noise) c = static_cast<char>(random());
    EXPECT_EQ(answer_to(all, {static_cast<uint32_t>(random()), 1, noise}), "");
    EXPECT_EQ(answer_to(all, {kJoin, 1, noise}), "");
  }
  EXPECT_THAT(answer_to(all, {kJoin, 1, joining("99", "2")}), HasSubstr("use the same owt everywhere"));
  EXPECT_THAT(answer_to(all, {kJoin, 1, joining("1", "3")}), HasSubstr("has WORLD_SIZE 2, this process 3"));
  for (const int rank : {-1, 0, 2})
    EXPECT_THAT(answer_to(all, {kJoin, rank, joining("1", "2")}),
                HasSubstr(concat("there is no rank ", rank, " of 2")));
  all.by_rank[1] = meet_over_tcp(all.launch(1, 2), "text of 1", 60);
  rank_0.join();
  EXPECT_EQ(errors[0], "");
  EXPECT_EQ(all.by_rank[0].texts[1], "text of 1");
}

TEST(TcpMeeting, RefusesASecondProcessWithTheSameRankWhileTheFirstIsThere) {
  Meetings all(3);
  std::vector<std::string> errors;
  std::jthread rank_0([&] { errors = all.meet({0}, 60); });
  const Message join{kJoin, 1, packed({"1", "3", "7 80 127.0.0.1", "elsewhere", ""})};
  MessageConnection first = connect_to("127.0.0.1", all.listener.port, std::chrono::seconds(10));
  ASSERT_TRUE(joins(first, join));
  EXPECT_THAT(answer_to(all, join), HasSubstr("rank 1 is there already, on elsewhere"));
  first.close();
  for (const std::string& error : all.meet({1, 2}, 60)) EXPECT_EQ(error, "");
  rank_0.join();
  EXPECT_EQ(errors[0], "");
}

}  // namespace
}  // namespace owt::tcp_test

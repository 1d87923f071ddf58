#include "src/comm/tcp_meeting.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <thread>
#include <utility>

#include "src/comm/communicator.h"
#include "src/comm/watch_links.h"
#include "src/system/check.h"
#include "src/system/sockets.h"
#include "src/system/texts.h"

namespace owt {
namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

constexpr auto kVersion = "1";  // version of all messages and frames over TCP
constexpr auto kTry = Milliseconds(3000), kTryAgain = Milliseconds(50);
constexpr auto kLater = Milliseconds(500);
constexpr size_t kMostText = 32 << 10;  // bytes; the rest of a message is short
constexpr int kFilesOfEach = 2;         // connections to a process that are open at a time
constexpr int kMoreFiles = 512;

enum MeetingWord : uint32_t {
  kJoin = 0x6f777501,  // to rank 0; text: a Registration
  kRefused,            // text: the reason
  kJoined,             // answers kJoin
  kPlace,              // to all; rank: of the process that `text` describes, packed({rendezvous, text of the process})
  kConnected,          // to rank 0: this rank is connected to all others
  kBegin,              // to all: every rank is
};

// What a process says when it comes to rank 0.
struct Registration {
  std::string version, ranks, rendezvous, host, text;
};

std::optional<Registration> registration_in(const std::string& text) {
  try {
    const std::vector<std::string> parts = unpacked(text);
    if (parts.size() != 5) return {};
    return Registration{parts[0], parts[1], parts[2], parts[3], parts[4]};
  } catch (const Error&) {  // it comes from another program
    return {};
  }
}

class TcpStart {
 public:
  TcpStart(const ProcessLaunch& launch, const std::string& mine, double seconds)
      : launch_(launch),
        seconds_(seconds),
        deadline_(Clock::now() + std::chrono::duration_cast<Milliseconds>(std::chrono::duration<double>(seconds))),
        talks_(launch.rank == 0 ? static_cast<size_t>(launch.ranks) : 1),
        places_(static_cast<size_t>(launch.ranks)),
        links_(static_cast<size_t>(launch.ranks)) {
    OWT_CHECK(mine.size() <= kMostText);
    mine_ = Registration{kVersion, std::to_string(launch.ranks), rendezvous_.address(), host_name(), mine};
    allow_open_files(int64_t{kFilesOfEach} * launch.ranks + kMoreFiles);
  }
  ~TcpStart() {
    if (door_.socket >= 0) close(door_.socket);
  }
  TcpStart(const TcpStart&) = delete;
  TcpStart& operator=(const TcpStart&) = delete;

  TcpMeeting run() {
    try {
      launch_.rank == 0 ? receive_all() : join();
      for (int rank = 0; rank < launch_.rank; ++rank) connect_to_rank(rank);
      until([&] { return missing_links() == 0; });
      if (launch_.rank > 0) talks_[0].send({kConnected, launch_.rank, ""});
      until([&] { return launch_.rank > 0 ? begun_ : connected_ == launch_.ranks - 1; });
    } catch (const Error& e) {
      tell_all({kRefused, launch_.rank, e.what()});
      throw;
    }
    tell_all({kBegin, 0, ""});
    begun_ = true;
    until([&] { return launch_.rank > 0 || nothing_unsent(); });
    TcpMeeting all;
    for (size_t rank = 0; rank < places_.size(); ++rank) {
      all.texts.push_back(places_[rank]->text);
      all.sockets.push_back(static_cast<int>(rank) == launch_.rank ? -1 : links_[rank].release());
    }
    return all;
  }

 private:
  int missing_links() const {
    int open = 0;
    for (const MessageConnection& link : links_) open += link.open();
    return launch_.ranks - 1 - open;
  }
  int missing_processes() const {
    return static_cast<int>(std::ranges::count_if(places_, [](const auto& place) { return !place; }));
  }
  std::string address() const { return concat(launch_.address, " port ", launch_.port); }

  // Listens, and answers, until it is done. Throws Error if another rank ends the meeting, or after the deadline.
  template <class Done>
  void until(const Done& done) {
    while (!done()) {
      if (launch_.changes() && launch_.is_over()) throw Aborted("the workers have changed while they met");
      if (Clock::now() >= deadline_) fail_late();
      std::vector<int> sockets{rendezvous_.socket()};
      if (door_.socket >= 0) sockets.push_back(door_.socket);
      for (const auto* list : {&talks_, &comers_, &partners_})
        for (const MessageConnection& one : *list)
          if (one.open()) sockets.push_back(one.socket());
      wait_readable(sockets, Milliseconds(100));
      for (size_t i = 0; i < talks_.size(); ++i) listen_to(static_cast<int>(i));
      if (door_.socket >= 0) accept_all(door_.socket, comers_);
      accept_all(rendezvous_.socket(), partners_);
      for (MessageConnection& comer : comers_) receive_comer(comer);
      for (MessageConnection& partner : partners_) receive_partner(partner);
      for (auto* list : {&comers_, &partners_}) std::erase_if(*list, [](const auto& one) { return !one.open(); });
    }
  }

  static void accept_all(int listener, std::vector<MessageConnection>& list) {
    for (MessageConnection come = accept_from(listener); come.open(); come = accept_from(listener))
      list.push_back(std::move(come));
  }

  [[noreturn]] void fail_late() const {
    std::string missing;
    const bool come = missing_processes() == 0;
    for (int rank = 0; rank < launch_.ranks; ++rank) {
      const auto r = static_cast<size_t>(rank);
      if (rank == launch_.rank || (come ? links_[r].open() : places_[r].has_value())) continue;
      missing += concat(missing.empty() ? "" : ", ", rank);
      if (come) missing += " on " + places_[r]->host;
    }
    if (launch_.rank > 0 && !come)
      fail("rank 0 at ", address(), " has not brought the ", launch_.ranks, " processes together for ", seconds_, " s");
    if (missing.empty()) fail("not all ranks are connected to each other after ", seconds_, " s");
    fail("ranks that have not connected to rank ", launch_.rank, " (", address(), ") over TCP within ", seconds_,
         " s: ", missing, "; start all ", launch_.ranks,
         " processes with the same MASTER_ADDR and MASTER_PORT, let their hosts ",
         "connect to each other, or raise OWT_START_TIMEOUT");
  }

  void tell_all(const Message& message) {
    if (launch_.rank > 0 && message.kind != kRefused) return;
    for (MessageConnection& talk : talks_) talk.send(message);
  }
  bool nothing_unsent() {
    for (MessageConnection& talk : talks_) talk.flush();
    return std::ranges::all_of(talks_, [](const MessageConnection& talk) { return talk.sent_all(); });
  }

  // Rank 0: returns when all processes have come, and knows where they listen.
  void receive_all() {
    const char* const inherited = std::getenv("OWT_LAUNCH_SOCKET");
    const auto open = inherited_listener(launch_.door >= 0 ? launch_.door : inherited ? std::atoi(inherited) : -1);
    try {
      door_ = open && open->port == launch_.port ? *open : listen_at_address();
    } catch (const Error& e) {
      fail("cannot listen for the other ranks at ", address(), ": ", e.what(), "; choose another MASTER_PORT");
    }
    places_[0] = mine_;
    until([&] { return missing_processes() == 0; });
    for (int rank = 0; rank < launch_.ranks; ++rank) {
      const Registration& one = *places_[static_cast<size_t>(rank)];
      tell_all({kPlace, rank, packed({one.version, one.ranks, one.rendezvous, one.host, one.text})});
    }
  }

  // A name may have addresses that this host lacks, e.g. ::1 in many containers. A name that only other hosts know is
  // no error.
  Listener listen_at_address() const {
    std::vector<std::string> addresses;
    try {
      addresses = addresses_of(launch_.address);
    } catch (const Error&) {
    }
    for (const std::string& one : addresses) try {
        return listen_on(one, launch_.port);
      } catch (const Error&) {
      }
    return listen_on("", launch_.port);
  }

  // Refuses everything but a process of this launch.
  void receive_comer(MessageConnection& comer) {
    std::optional<Message> said;
    comer.receive([&](const Message& message) { said = message; });
    if (!said) return;
    auto registration = said->kind == kJoin ? registration_in(said->text) : std::nullopt;
    if (!registration) return comer.close();
    if (said->rank > 0 && said->rank < launch_.ranks) listen_to(said->rank);  // who has gone may come again
    const std::string wrong = why_not(said->rank, *registration);
    if (!wrong.empty()) {
      comer.send({kRefused, 0, wrong});
      return comer.close();
    }
    // The address that rank 0 sees is the one that the other ranks can use with the best prospects.
    if (const std::string seen = address_of_peer(comer.socket()); !seen.empty()) {
      std::string& text = registration->rendezvous;
      const size_t port_ends = text.find(' ', text.find(' ') + 1);
      if (port_ends != std::string::npos) text.insert(port_ends, ' ' + seen);
    }
    const auto rank = static_cast<size_t>(said->rank);
    comer.send({kJoined, 0, ""});
    places_[rank] = std::move(registration);
    talks_[rank] = std::move(comer);
  }

  std::string why_not(int rank, const Registration& registration) const {
    if (registration.version != kVersion)
      return concat("rank 0 speaks version ", kVersion, " of owt's protocol, this process version ",
                    registration.version, "; use the same owt everywhere");
    if (registration.ranks != mine_.ranks)
      return concat("rank 0 at ", address(), " has WORLD_SIZE ", mine_.ranks, ", this process ", registration.ranks,
                    "; set the same one everywhere");
    if (rank < 1 || rank >= launch_.ranks) return concat("there is no rank ", rank, " of ", launch_.ranks);
    const auto& place = places_[static_cast<size_t>(rank)];
    if (place) return concat("rank ", rank, " is there already, on ", place->host, "; give each process its own RANK");
    return "";
  }

  // Other ranks: returns when they know where everybody listens.
  void join() {
    std::string why;
    while (!joined_rank_0(why)) {
      if (launch_.changes() && launch_.is_over()) throw Aborted("the workers have changed while they met");
      if (Clock::now() >= deadline_)
        fail("rank ", launch_.rank, " on ", host_name(), " has not reached rank 0 at ", address(), " within ", seconds_,
             " s: ", why, "; start rank 0, look at MASTER_ADDR and MASTER_PORT, or raise OWT_START_TIMEOUT");
      std::this_thread::sleep_for(kTryAgain);
    }
    deadline_ += kLater;  // rank 0 says first who is missing
    until([&] { return missing_processes() == 0; });
  }

  // False: rank 0 has not answered yet; `why`, for a message.
  bool joined_rank_0(std::string& why) {
    const Registration& m = mine_;
    try {
      for (const std::string& address : addresses_of(launch_.address)) try {
          const auto left = std::chrono::ceil<Milliseconds>(deadline_ - Clock::now());
          talks_[0] = connect_to(address, launch_.port, std::min(kTry, left));
          talks_[0].send({kJoin, launch_.rank, packed({m.version, m.ranks, m.rendezvous, m.host, m.text})});
          while (talks_[0].open() && !joined_ && Clock::now() < deadline_) {
            talks_[0].flush();
            wait_readable({talks_[0].socket()}, Milliseconds(100));
            talks_[0].receive([&](const Message& message) { take(0, message); });
            if (refusal_) fail_refused();
          }
          if (joined_) return true;
          why = talks_[0].open() ? "somebody accepts the connection, but does not answer" : "somebody else answers";
          talks_[0].close();
        } catch (const Refused&) {
          throw;
        } catch (const Error& e) {
          why = e.what();
        }
    } catch (const Refused&) {
      throw;
    } catch (const Error& e) {
      why = e.what();
    }
    return false;
  }

  class Refused : public Error {
   public:
    using Error::Error;
  };
  [[noreturn]] void fail_refused() const { throw Refused(*refusal_); }

  void listen_to(int rank) {
    MessageConnection& talk = talks_[static_cast<size_t>(rank)];
    if (!talk.open()) return;
    talk.flush();
    talk.receive([&](const Message& message) { take(rank, message); });
    if (refusal_) fail_refused();
    if (talk.open() || begun_) return;
    if (launch_.rank > 0) fail("rank 0 at ", address(), " has ended before all ranks were connected");
    // It may come again; after that all depend on it.
    if (missing_processes() == 0)
      fail("rank ", rank, " on ", places_[static_cast<size_t>(rank)]->host,
           " has ended before all ranks were connected");
    places_[static_cast<size_t>(rank)].reset();
  }

  void take(int from, const Message& message) {
    const bool of_rank = message.rank >= 0 && message.rank < launch_.ranks;
    if (message.kind == kRefused) {
      if (launch_.rank == 0 && missing_processes() > 0)
        talks_[static_cast<size_t>(from)].close();  // it waits no longer, and is missing too
      else
        refusal_ = message.text;
    }
    if (message.kind == kConnected && from > 0) ++connected_;
    if (launch_.rank == 0) return;
    if (message.kind == kJoined) joined_ = true;
    if (message.kind == kPlace && of_rank) places_[static_cast<size_t>(message.rank)] = registration_in(message.text);
    if (message.kind == kBegin) begun_ = true;
  }

  void connect_to_rank(int rank) {
    const Registration& there = *places_[static_cast<size_t>(rank)];
    try {
      links_[static_cast<size_t>(rank)] = greet(there.rendezvous, launch_.rank, there.host == mine_.host);
    } catch (const Error& e) {
      fail("rank ", launch_.rank, " on ", mine_.host, " cannot reach rank ", rank, " on ", there.host, " over TCP, ",
           e.what(), "; let the hosts of a run connect to each other");
    }
  }

  void receive_partner(MessageConnection& partner) {
    const auto rank = greeted(partner, rendezvous_.token(), launch_.ranks);
    if (rank && *rank > launch_.rank) links_[static_cast<size_t>(*rank)] = std::move(partner);
  }

  const ProcessLaunch& launch_;
  const double seconds_;
  Clock::time_point deadline_;
  const Watch::Rendezvous rendezvous_;  // for ranks with greater numbers
  Listener door_;                       // rank 0: where all others come
  Registration mine_;
  std::vector<MessageConnection> talks_;              // rank 0: by rank; others: with rank 0
  std::vector<MessageConnection> comers_, partners_;  // have not said yet who they are
  std::vector<std::optional<Registration>> places_;   // by rank
  std::vector<MessageConnection> links_;              // by rank
  std::optional<std::string> refusal_;
  bool joined_ = false, begun_ = false;
  int connected_ = 0;
};

}  // namespace

TcpMeeting meet_over_tcp(const ProcessLaunch& launch, const std::string& mine, double seconds) {
  return TcpStart(launch, mine, seconds).run();
}

}  // namespace owt

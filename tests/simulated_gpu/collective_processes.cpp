#include "tests/simulated_gpu/collective_processes.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <thread>

namespace simulated_gpu {
namespace {

// The content of a unique id: the number of a world, and the process and the socket where its ranks meet.
struct WorldId {
  uint64_t number = 0;
  pid_t process = 0;
  socklen_t length = 0;  // bytes of the address
  char address[sizeof(ncclUniqueId) - 16]{};
};
static_assert(sizeof(WorldId) == sizeof(ncclUniqueId));

struct Worlds {
  std::mutex mutex;
  std::map<uint64_t, std::shared_ptr<World>> all;              // by number
  std::map<std::pair<uint64_t, int>, std::atomic<bool>> left;  // by number and rank, for ranks of other processes
  uint64_t next = 1;
};

Worlds& worlds() {
  static Worlds& worlds = *new Worlds;
  return worlds;
}

// Null: there is no such world.
std::shared_ptr<World> world_of(uint64_t number, int ranks) {
  const std::lock_guard lock(worlds().mutex);
  if (ranks < 1 || number == 0 || number >= worlds().next) return nullptr;
  auto& place = worlds().all[number];
  if (!place) place = std::make_shared<World>(ranks);
  return place;
}

std::atomic<bool>& left(uint64_t number, int rank) {
  const std::lock_guard lock(worlds().mutex);
  return worlds().left[{number, rank}];
}

// Calls move(bytes done) until all are done. False: the other side is gone.
template <class Move>
bool move_all(size_t bytes, const Move& move) {
  for (size_t done = 0; done < bytes;) {
    const ssize_t more = move(done);
    if (more > 0)
      done += static_cast<size_t>(more);
    else if (more == 0 || errno != EINTR)
      return false;
  }
  return true;
}

bool send_all(int socket, const void* from, size_t bytes) {
  return move_all(bytes, [&](size_t done) {
    return send(socket, static_cast<const std::byte*>(from) + done, bytes - done, MSG_NOSIGNAL);
  });
}

bool receive_all(int socket, void* to, size_t bytes) {
  return move_all(bytes,
                  [&](size_t done) { return recv(socket, static_cast<std::byte*>(to) + done, bytes - done, 0); });
}

// Values one after another.
class Values {
 public:
  void put(const void* from, size_t bytes) {
    const auto* const first = static_cast<const std::byte*>(from);
    bytes_.insert(bytes_.end(), first, first + bytes);
  }
  template <class T>
  void put(const T& value) {
    put(&value, sizeof value);
  }
  void take(void* to, size_t bytes) {
    std::copy_n(bytes_.data() + taken_, bytes, static_cast<std::byte*>(to));
    taken_ += bytes;
  }
  template <class T>
  T take() {
    T value;
    take(&value, sizeof value);
    return value;
  }

  bool send_to(int socket) const {
    const size_t size = bytes_.size();
    return send_all(socket, &size, sizeof size) && send_all(socket, bytes_.data(), size);
  }
  // Nothing: the other side is gone.
  static std::optional<Values> from(int socket) {
    Values values;
    size_t size = 0;
    if (!receive_all(socket, &size, sizeof size)) return {};
    values.bytes_.resize(size);
    if (!receive_all(socket, values.bytes_.data(), size)) return {};
    return values;
  }

 private:
  std::vector<std::byte> bytes_;
  size_t taken_ = 0;
};

// A question to the process of a world. The batch follows kRun.
struct Question {
  enum class Kind { kJoin, kState, kRun, kLeave };
  Kind kind{};
  uint64_t number = 0;
  int rank = 0, ranks = 0;
  char gpu[256]{};
};

// A batch, with what the rank sends.
void put_batch(Values& values, const Batch& batch, int rank, int ranks) {
  values.put(batch.collectives.size());
  values.put(batch.messages.size());
  for (const CollectiveCall& call : batch.collectives) {
    values.put(call);
    values.put(call.send, sent_elements(call, rank, ranks) * bytes_of(call.type));
  }
  for (const PointToPoint& message : batch.messages) {
    values.put(message);
    if (message.sends) values.put(message.data, message.bytes);
  }
}

// The batch of a rank elsewhere, with memory of this process.
class BatchHere {
 public:
  BatchHere(Values& values, int rank, int ranks) {
    batch_.collectives.resize(values.take<size_t>());
    batch_.messages.resize(values.take<size_t>());
    for (CollectiveCall& call : batch_.collectives) {
      call = values.take<CollectiveCall>();
      call.send = taken(values, sent_elements(call, rank, ranks) * bytes_of(call.type));
      call.receive = room(received_elements(call, rank, ranks) * bytes_of(call.type));
    }
    for (PointToPoint& message : batch_.messages) {
      message = values.take<PointToPoint>();
      message.data = message.sends ? taken(values, message.bytes) : room(message.bytes);
    }
  }

  const Batch& batch() const { return batch_; }

 private:
  std::byte* room(size_t bytes) { return memory_.emplace_back(bytes).data(); }
  std::byte* taken(Values& values, size_t bytes) {
    std::byte* const to = room(bytes);
    values.take(to, bytes);
    return to;
  }

  Batch batch_;
  std::deque<std::vector<std::byte>> memory_;
};

// Calls move(memory, bytes) for everything that the rank receives.
template <class Move>
void for_received(const Batch& batch, int rank, int ranks, const Move& move) {
  for (const CollectiveCall& call : batch.collectives)
    move(call.receive, received_elements(call, rank, ranks) * bytes_of(call.type));
  for (const PointToPoint& message : batch.messages)
    if (!message.sends) move(message.data, message.bytes);
}

Values answer_to(Values& asked) {
  const Question question = asked.take<Question>();
  const std::shared_ptr<World> world = world_of(question.number, question.ranks);
  Values answer;
  switch (question.kind) {
    case Question::Kind::kJoin:
      answer.put(world && world->join(question.rank, question.ranks, question.gpu));
      break;
    case Question::Kind::kState:
      answer.put(world->state());
      break;
    case Question::Kind::kRun: {
      const BatchHere here(asked, question.rank, question.ranks);
      world->run(question.rank, here.batch(), left(question.number, question.rank));
      for_received(here.batch(), question.rank, question.ranks,
                   [&](const void* data, size_t bytes) { answer.put(data, bytes); });
      break;
    }
    case Question::Kind::kLeave:
      world->leave(&left(question.number, question.rank));
      break;
  }
  return answer;
}

void answer_all(int socket) {
  while (std::optional<Values> asked = Values::from(socket))
    if (!answer_to(*asked).send_to(socket)) break;
  close(socket);
}

// Starts a thread that answers questions to this process. The kernel chooses the address.
WorldId start_to_answer() {
  WorldId id;
  id.process = getpid();
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  id.length = sizeof id.address;
  const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address.sun_family) != 0 ||
      listen(listener, SOMAXCONN) != 0 ||
      getsockname(listener, reinterpret_cast<sockaddr*>(id.address), &id.length) != 0) {
    std::perror("simulated GPU: NCCL: no socket");
    std::abort();
  }
  std::thread([listener] {
    for (;;)
      if (const int socket = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC); socket >= 0)
        std::thread(answer_all, socket).detach();
  }).detach();
  return id;
}

// A connection to the process of a world.
class Caller {
 public:
  explicit Caller(const WorldId& id) : socket_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    std::memcpy(&address, id.address, id.length);
    static_cast<void>(connect(socket_, reinterpret_cast<const sockaddr*>(&address), id.length));  // ask() fails then
  }
  ~Caller() { close(socket_); }
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;

  // Nothing: the process is gone.
  std::optional<Values> ask(const Values& question) {
    const std::lock_guard lock(mutex_);
    if (!question.send_to(socket_)) return {};
    return Values::from(socket_);
  }

 private:
  std::mutex mutex_;
  const int socket_;
};

class WorldElsewhere : public Ranks {
 public:
  WorldElsewhere(const WorldId& id, int rank, int ranks)
      : number_(id.number), rank_(rank), ranks_(ranks), control_(id), work_(id) {}

  bool join(const std::string& gpu) {
    std::optional<Values> answer = control_.ask(question(Question::Kind::kJoin, gpu));
    return answer && answer->take<bool>();
  }
  int ranks() const override { return ranks_; }
  ncclResult_t state() override {
    std::optional<Values> answer = control_.ask(question(Question::Kind::kState));
    return answer ? answer->take<ncclResult_t>() : ncclRemoteError;
  }
  void run(int, const Batch& batch, const std::atomic<bool>& aborted) override {
    Values asked = question(Question::Kind::kRun);
    put_batch(asked, batch, rank_, ranks_);
    std::optional<Values> answer = work_.ask(asked);
    if (answer)
      for_received(batch, rank_, ranks_, [&](void* data, size_t bytes) { answer->take(data, bytes); });
    else
      while (!aborted) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  void leave(std::atomic<bool>* aborted) override {
    *aborted = true;
    control_.ask(question(Question::Kind::kLeave));
  }

 private:
  Values question(Question::Kind kind, const std::string& gpu = "") const {
    Question question{kind, number_, rank_, ranks_};
    gpu.copy(question.gpu, sizeof question.gpu - 1);
    Values values;
    values.put(question);
    return values;
  }

  const uint64_t number_;
  const int rank_, ranks_;
  Caller control_, work_;  // run() waits for the other ranks
};

}  // namespace

ncclUniqueId make_world() {
  static const WorldId here = start_to_answer();
  WorldId id = here;
  {
    const std::lock_guard lock(worlds().mutex);
    id.number = worlds().next++;
  }
  return std::bit_cast<ncclUniqueId>(id);
}

std::shared_ptr<Ranks> join_world(const ncclUniqueId& made, int rank, int ranks, const std::string& gpu) {
  const auto id = std::bit_cast<WorldId>(made);
  if (id.process == getpid()) {
    const std::shared_ptr<World> world = world_of(id.number, ranks);
    return world && world->join(rank, ranks, gpu) ? world : nullptr;
  }
  if (id.process == 0 || id.length > sizeof id.address) return nullptr;
  const auto world = std::make_shared<WorldElsewhere>(id, rank, ranks);
  return world->join(gpu) ? world : nullptr;
}

}  // namespace simulated_gpu

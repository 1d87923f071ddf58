// Transfers over one TCP connection to another process, in frames. For tcp_links.cpp.
//
// Frames are a header and perhaps bytes:
//   - kWhole: a transfer of up to 64 KiB. If it is not wanted yet, the receiver keeps it.
//   - kOffer: a larger transfer. It waits at the sender until the receiver has memory for it.
//   - kAccept: the receiver has that memory. The n-th kAccept with a tag belongs to the n-th kOffer with it; either may
//     come first.
//   - kPiece: bytes of an accepted transfer. It comes in pieces, so that other frames do not wait for all of it.
// So a process stores at most 64 KiB of each transfer that it does not want yet, like the MPI libraries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <unordered_map>
#include <vector>

namespace owt {

class TcpConnection {
 public:
  struct Transfer {
    TcpConnection* connection = nullptr;
    std::byte* memory = nullptr;
    int64_t bytes = 0;  // size of the memory
    int tag = 0;
    int64_t size = 0;  // for the receiver: size of the ended transfer; -1: larger than the memory
    int64_t left = 0;  // bytes that have not moved yet
    bool ended = false;
  };

  // socket: connected; ownership is taken. name: of the other process, for messages.
  TcpConnection(int socket, std::string name);
  ~TcpConnection();
  TcpConnection(const TcpConnection&) = delete;
  TcpConnection& operator=(const TcpConnection&) = delete;

  int socket() const { return socket_; }
  bool open() const { return socket_ >= 0; }
  const std::string& why_closed() const { return why_closed_; }
  // A transfer must stay until it has ended, or the connection is closed. Its memory is only read by send().
  void send(Transfer& transfer);
  void receive(Transfer& transfer);

  // The system says that bytes have come, that there is room for some, or that no more will come. The connection
  // remembers the first two until the system says otherwise.
  void set_ready(bool readable, bool writable, bool ends = false) {
    readable_ |= readable | ends, writable_ |= writable, ends_ |= ends;
  }
  bool has_more() const { return open() && readable_; }  // move() left something to read
  bool receives_pieces() const { return open() && !accepting_.empty(); }
  // Moves what can be moved without waiting. Closes the connection if the other process has, or if it sends what is no
  // frame; transfers that have not ended then never do.
  void move();

 private:
  enum Kind : uint32_t { kWhole = 0x6f777601, kOffer, kAccept, kPiece };
  struct Header {
    uint32_t kind = 0;
    int32_t tag = 0;
    uint64_t number = 0;  // the sender's number of an offer; the same in its pieces
    int64_t bytes = 0;
  };
  static constexpr int64_t kHeader = sizeof(Header);
  struct Frame {
    Header header;
    const std::byte* bytes = nullptr;
    Transfer* transfer = nullptr;  // the frame's bytes are its next ones; null: it has none
  };
  struct Unwanted {  // has come, or was offered, before this process called receive()
    Header header;
    std::vector<std::byte> bytes;
  };

  void close(const std::string& why);
  bool next_frame();
  void write();
  void end_frame();
  void read();
  ptrdiff_t read_some(std::byte* to, int64_t bytes);
  std::string begin_bytes();  // after a header; returns what is wrong with it
  void end_bytes();
  void give(Transfer& transfer, const Unwanted& come);
  void keep(Unwanted come);

  int socket_;
  const std::string name_;
  std::string why_closed_;
  bool readable_ = true, writable_ = true;
  bool ends_ = false, broken_ = false;  // nothing more comes; nothing can be sent

  std::deque<Frame> urgent_;     // all frames but pieces
  std::deque<Frame> accepted_;   // one for each transfer that is sent in pieces
  std::deque<Frame> offered_;    // likewise, before they are accepted
  std::deque<int32_t> accepts_;  // tags of transfers that the other process can take, and that were not sent yet
  uint64_t offers_ = 0;
  Frame frame_;           // is being written
  int64_t written_ = -1;  // bytes of it, with its header; -1: none

  std::deque<Transfer*> wanted_;
  std::deque<Unwanted> unwanted_;
  int64_t unwanted_bytes_ = 0;
  std::unordered_map<uint64_t, Transfer*> accepting_;
  Header header_;  // is being read
  int64_t header_bytes_ = 0, left_ = 0;
  Transfer* into_ = nullptr;  // where the bytes of the frame go; null: to kept_
  std::byte* at_ = nullptr;
  std::vector<std::byte> kept_;
};

}  // namespace owt

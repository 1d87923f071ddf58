#include "src/comm/tcp_connection.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "src/comm/links.h"

namespace owt {
namespace {

constexpr int64_t kMostWhole = 64 << 10, kMostPiece = 128 << 10;
constexpr int kMostUnsent = 2 << 20;
constexpr int64_t kMostAtOnce = 8 << 20;    // bytes that are read before other connections have their turn
constexpr int64_t kMostUnwanted = 1 << 30;  // bytes that are kept until they are wanted
constexpr size_t kMostUnwantedFrames = 1 << 20;

bool would_wait(int error) { return error == EAGAIN || error == EWOULDBLOCK; }

}  // namespace

TcpConnection::TcpConnection(int socket, std::string name) : socket_(socket), name_(std::move(name)) {
  const int on = 1;
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  // The system takes no more than it will send soon, so that urgent frames do not wait for all pieces.
  setsockopt(socket, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &kMostUnsent, sizeof kMostUnsent);
}

TcpConnection::~TcpConnection() { close(""); }

void TcpConnection::close(const std::string& why) {
  if (!open()) return;
  ::close(socket_);
  socket_ = -1;
  why_closed_ = concat("the TCP connection to ", name_, " has ended", why.empty() ? "" : ": ", why);
}

void TcpConnection::send(Transfer& transfer) {
  transfer.left = transfer.bytes;
  if (transfer.bytes <= kMostWhole) {
    urgent_.push_back({{kWhole, transfer.tag, 0, transfer.bytes}, transfer.memory, &transfer});
  } else {
    urgent_.push_back({{kOffer, transfer.tag, ++offers_, transfer.bytes}, nullptr, nullptr});
    const auto accept = std::ranges::find(accepts_, transfer.tag);
    const bool accepted = accept != accepts_.end();
    (accepted ? accepted_ : offered_).push_back({{kPiece, transfer.tag, offers_, 0}, nullptr, &transfer});
    if (accepted) accepts_.erase(accept);
  }
  write();
}

void TcpConnection::receive(Transfer& transfer) {
  if (transfer.bytes > kMostWhole) {
    urgent_.push_back({{kAccept, transfer.tag, 0, 0}, nullptr, nullptr});
    write();
  }
  const auto come = std::ranges::find(unwanted_, transfer.tag, [](const Unwanted& one) { return one.header.tag; });
  if (come == unwanted_.end()) return wanted_.push_back(&transfer);
  give(transfer, *come);
  unwanted_bytes_ -= std::ssize(come->bytes);
  unwanted_.erase(come);
}

void TcpConnection::move() {
  if (open() && readable_) read();
  if (open() && writable_) write();
}

bool TcpConnection::next_frame() {
  if (!urgent_.empty()) {
    frame_ = urgent_.front();
    urgent_.pop_front();
  } else if (!accepted_.empty()) {
    frame_ = accepted_.front();
    const Transfer& transfer = *frame_.transfer;
    frame_.header.bytes = std::min(transfer.left, kMostPiece);
    frame_.bytes = transfer.memory + (transfer.bytes - transfer.left);
  } else {
    return false;
  }
  written_ = 0;
  return true;
}

void TcpConnection::write() {
  while (open() && writable_ && !broken_ && (written_ >= 0 || next_frame())) {
    const int64_t bytes = frame_.bytes ? frame_.header.bytes : 0;
    const int64_t of_header = std::max<int64_t>(kHeader - written_, 0);
    const int64_t of_bytes = std::max<int64_t>(written_ - kHeader, 0);
    iovec parts[] = {{reinterpret_cast<char*>(&frame_.header) + (kHeader - of_header), static_cast<size_t>(of_header)},
                     {const_cast<std::byte*>(frame_.bytes) + of_bytes, static_cast<size_t>(bytes - of_bytes)}};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = bytes > 0 ? 2 : 1;
    const ssize_t sent = ::sendmsg(socket_, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && would_wait(errno)) writable_ = false;
    // read() reports a broken connection, after all that was sent before it broke.
    if (sent < 0 && writable_) broken_ = readable_ = true;
    if (sent < 0) return;
    written_ += sent;
    if (written_ == kHeader + bytes) end_frame();
  }
}

void TcpConnection::end_frame() {
  written_ = -1;
  Transfer* const transfer = frame_.transfer;
  if (!transfer) return;
  transfer->left -= frame_.header.bytes;
  transfer->ended = transfer->left == 0;
  if (frame_.header.kind == kPiece && transfer->ended) accepted_.pop_front();
}

// -1: nothing to read now.
ptrdiff_t TcpConnection::read_some(std::byte* to, int64_t bytes) {
  while (true) {
    const ssize_t got = recv(socket_, to, static_cast<size_t>(bytes), MSG_DONTWAIT);
    // Fewer: the system has no more, and will say so when it has. It says only once that the connection ends.
    if (got > 0) readable_ = got == bytes || ends_;
    if (got > 0) return got;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && would_wait(errno))
      readable_ = false;
    else
      close(got == 0 ? "it was closed there" : std::strerror(errno));
    return -1;
  }
}

void TcpConnection::read() {
  for (int64_t moved = 0; readable_ && moved < kMostAtOnce;) {
    ptrdiff_t got = 0;
    if (header_bytes_ < kHeader) {
      got = read_some(reinterpret_cast<std::byte*>(&header_) + header_bytes_, kHeader - header_bytes_);
      if (got < 0) return;
      header_bytes_ += got;
      if (header_bytes_ < kHeader) continue;
      if (const std::string wrong = begin_bytes(); !wrong.empty()) return close(concat("it sent ", wrong));
    } else {
      got = read_some(at_, left_);
      if (got < 0) return;
      at_ += got;
      left_ -= got;
    }
    moved += got;
    if (left_ == 0) end_bytes();
  }
}

std::string TcpConnection::begin_bytes() {
  left_ = 0;
  into_ = nullptr;
  const int64_t bytes = header_.bytes;
  switch (header_.kind) {
    case kWhole: {
      if (bytes < 0 || bytes > kMostWhole) return concat("a frame of ", bytes, " bytes");
      const auto wanted = std::ranges::find(wanted_, header_.tag, &Transfer::tag);
      if (wanted != wanted_.end() && (*wanted)->bytes >= bytes) {
        into_ = *wanted;
        wanted_.erase(wanted);
      } else {
        kept_.resize(static_cast<size_t>(bytes));
      }
      at_ = into_ ? into_->memory : kept_.data();
      left_ = bytes;
      return "";
    }
    case kOffer:
      return bytes <= kMostWhole || bytes > kMostInRequest ? concat("an offer of ", bytes, " bytes") : "";
    case kAccept:
      return bytes != 0 || accepts_.size() >= kMostUnwantedFrames ? "an answer to no offer" : "";
    case kPiece: {
      const auto found = accepting_.find(header_.number);
      if (found == accepting_.end() || bytes <= 0 || bytes > std::min(found->second->left, kMostPiece))
        return concat("a piece of ", bytes, " bytes that fits nowhere");
      into_ = found->second;
      at_ = into_->memory + (into_->size - into_->left);
      left_ = bytes;
      return "";
    }
    default:
      return "what is no frame of owt";
  }
}

void TcpConnection::end_bytes() {
  header_bytes_ = 0;
  switch (header_.kind) {
    case kWhole:
      if (into_)
        into_->size = header_.bytes, into_->ended = true;
      else
        keep({header_, std::exchange(kept_, {})});
      return;
    case kOffer:
      return keep({header_, {}});
    case kAccept: {
      const auto tag_of = [](const Frame& frame) { return frame.header.tag; };
      const auto offer = std::ranges::find(offered_, header_.tag, tag_of);
      if (offer == offered_.end()) return accepts_.push_back(header_.tag);
      accepted_.push_back(*offer);
      offered_.erase(offer);
      return;
    }
    default:
      into_->left -= header_.bytes;
      into_->ended = into_->left == 0;
      if (into_->ended) accepting_.erase(header_.number);
  }
}

// What has come, for the transfer that wants it or will want it.
void TcpConnection::keep(Unwanted come) {
  const auto wanted = std::ranges::find(wanted_, come.header.tag, &Transfer::tag);
  if (wanted != wanted_.end()) {
    Transfer& transfer = **wanted;
    wanted_.erase(wanted);
    return give(transfer, come);
  }
  unwanted_bytes_ += std::ssize(come.bytes);
  unwanted_.push_back(std::move(come));
  if (unwanted_bytes_ > kMostUnwanted || unwanted_.size() > kMostUnwantedFrames)
    close("it sent more than can be kept until it is wanted");
}

void TcpConnection::give(Transfer& transfer, const Unwanted& come) {
  transfer.size = come.header.bytes <= transfer.bytes ? come.header.bytes : -1;
  transfer.ended = come.header.kind == kWhole || transfer.size < 0;
  if (!transfer.ended) {
    transfer.left = transfer.size;
    accepting_.emplace(come.header.number, &transfer);
  } else if (transfer.size > 0) {
    std::memcpy(transfer.memory, come.bytes.data(), come.bytes.size());
  }
}

}  // namespace owt

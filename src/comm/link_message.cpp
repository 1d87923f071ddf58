#include "src/comm/link_message.h"

#include <algorithm>

#include "src/system/activity.h"

namespace owt {

bool LinkMessage::move(ProcessLinks& links) {
  const bool begins = requests_.empty();
  if (begins) begin(links);
  const std::vector<ProcessLinks::Ended>& ended = links.test(requests_);
  for (const ProcessLinks::Ended& part : ended) check(part);
  if (!ended.empty()) note_work();
  moved_ += ended.size();
  over_ = moved_ == requests_.size();
  if (over_) {
    ms_ = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begun_).count();
    call_ = {};  // otherwise its memory would last as long as the event
  }
  return begins || !ended.empty();
}

void LinkMessage::begin(ProcessLinks& links) {
  begun_ = std::chrono::steady_clock::now();
  Tensor out = call_.out;
  const auto parts = static_cast<size_t>(bytes() / kMostInRequest + 1);
  for (size_t i = 0; i < parts; ++i) {
    const auto at = static_cast<int64_t>(i) * kMostInRequest;
    if (sends())
      links.send(requests_, static_cast<const std::byte*>(call_.in.raw()) + at, bytes_of(i), peer_, tag_);
    else
      links.receive(requests_, static_cast<std::byte*>(out.raw()) + at, bytes_of(i), peer_, tag_);
  }
}

int64_t LinkMessage::bytes_of(size_t part) const {
  return std::min(kMostInRequest, bytes() - static_cast<int64_t>(part) * kMostInRequest);
}

// Throws Error if a part has another size than expected. The error states the message's size: the bytes before that
// part and in it.
void LinkMessage::check(const ProcessLinks::Ended& part) const {
  if (sends() || part.bytes == bytes_of(part.index)) return;
  const int64_t before = static_cast<int64_t>(part.index) * kMostInRequest;
  const std::string came = part.bytes < 0 ? concat("more than ", bytes()) : std::to_string(before + part.bytes);
  throw Error(wrong_size(call_.root, came, bytes()));
}

}  // namespace owt

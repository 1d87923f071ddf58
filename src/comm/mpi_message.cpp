#include "src/comm/mpi_message.h"

#include <algorithm>

#include "src/system/activity.h"

namespace owt {

void detail::check_mpi(int result, const char* call) {
  if (result == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(result, text, &length);
  throw MpiError(concat("MPI: ", std::string(text, static_cast<size_t>(length)), " in ", call,
                        "; look at the logs of the other ranks and at the network"));
}

bool MpiMessage::move() {
  const bool begins = requests_.empty();
  if (begins) begin();
  int moved = 0;
  const int result =
      MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &moved, moved_now_.data(), statuses_.data());
  if (result != MPI_ERR_IN_STATUS) OWT_MPI(result);
  for (size_t i = 0; i < static_cast<size_t>(moved); ++i)
    check(static_cast<size_t>(moved_now_[i]), result == MPI_SUCCESS ? result : statuses_[i].MPI_ERROR, statuses_[i]);
  if (moved > 0) note_work();
  moved_ += static_cast<size_t>(moved);
  over_ = moved_ == requests_.size();
  if (over_) {
    ms_ = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begun_).count();
    call_ = {};  // otherwise its memory would last as long as the event
  }
  return begins || moved > 0;
}

void MpiMessage::begin() {
  begun_ = std::chrono::steady_clock::now();
  requests_.assign(static_cast<size_t>(bytes() / kMostInRequest + 1), MPI_REQUEST_NULL);
  moved_now_.resize(requests_.size());
  statuses_.resize(requests_.size());
  Tensor out = call_.out;
  for (size_t i = 0; i < requests_.size(); ++i) {
    const auto at = static_cast<int64_t>(i) * kMostInRequest;
    if (sends())
      OWT_MPI(MPI_Isend(static_cast<const std::byte*>(call_.in.raw()) + at, bytes_of(i), MPI_BYTE, peer_, tag_,
                        MPI_COMM_WORLD, &requests_[i]));
    else
      OWT_MPI(MPI_Irecv(static_cast<std::byte*>(out.raw()) + at, bytes_of(i), MPI_BYTE, peer_, tag_, MPI_COMM_WORLD,
                        &requests_[i]));
  }
}

int MpiMessage::bytes_of(size_t part) const {
  return static_cast<int>(std::min(kMostInRequest, bytes() - static_cast<int64_t>(part) * kMostInRequest));
}

// Throws Error if a part has another size than expected. The error states the message's size: the bytes before that
// part and in it. MPI does not report the size if too many bytes arrive.
void MpiMessage::check(size_t part, int error, const MPI_Status& status) const {
  if (error == MPI_ERR_TRUNCATE) throw Error(wrong_size(call_.root, concat("more than ", bytes()), bytes()));
  OWT_MPI(error);
  if (sends()) return;
  int came = 0;
  OWT_MPI(MPI_Get_count(&status, MPI_BYTE, &came));
  if (came != bytes_of(part))
    throw Error(wrong_size(call_.root, std::to_string(static_cast<int64_t>(part) * kMostInRequest + came), bytes()));
}

}  // namespace owt

// Lack of memory is never reported as damage, whether the readers or their libraries run out.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <new>
#include <stdexcept>

#include "data/jpeg/jpeg_window.h"
#include "data/photos/photo.h"
#include "tests/support/made_photos.h"

namespace owt::photo_memory_test {
namespace {

enum Outcome { kDone = 0, kNoMemory = 10, kDamaged = 11 };

// Allocates nothing, because it is called when the memory is used up.
uint64_t address_space() {
  char text[64] = {};
  const int file = open("/proc/self/statm", O_RDONLY);
  const bool was_read = read(file, text, sizeof text - 1) > 0;
  close(file);
  const auto pages = std::strtoull(text, nullptr, 10);
  if (!was_read || pages == 0) throw std::runtime_error("the size of the address space is unknown");
  return pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

void limit_address_space(uint64_t bytes) {
  rlimit limit{};
  getrlimit(RLIMIT_AS, &limit);
  limit.rlim_cur = std::min<rlim_t>(bytes, limit.rlim_max);
  setrlimit(RLIMIT_AS, &limit);
}

// What becomes of the work in a process that can take `bytes` more.
int outcome_with(uint64_t bytes, const std::function<void()>& work) {
  const pid_t child = fork();
  if (child == 0) {
    try {  // an exception that leaves this function makes the child run the other tests
      limit_address_space(address_space());
      while (std::malloc(1 << 14)) continue;  // use up the memory that earlier tests have freed
      limit_address_space(address_space() + bytes);
      work();
      _exit(kDone);
    } catch (const std::bad_alloc&) {
      _exit(kNoMemory);
    } catch (...) {
      _exit(kDamaged);
    }
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void expect_no_damage(const char* what, const std::function<void()>& work) {
  constexpr uint64_t kMega = 1 << 20;
  EXPECT_EQ(outcome_with(kMega, work), kNoMemory) << what;
  for (uint64_t bytes = 3 * kMega; bytes < 20 * kMega; bytes += 2 * kMega) {
    const int outcome = outcome_with(bytes, work);
    EXPECT_TRUE(outcome == kDone || outcome == kNoMemory) << what << " with " << bytes << ": " << outcome;
  }
}

class PhotoMemory : public testing::Test {
 protected:
  void SetUp() override {
    if (address_space() > uint64_t{1} << 40) GTEST_SKIP() << "a sanitizer takes the address space";
  }
  const Photo photo_ = quadrants(1024, 1024, kFourColours);
};

TEST_F(PhotoMemory, LittleOfItIsNoDamage) {
  for (const auto& [name, file] :
       std::vector<std::pair<const char*, std::string>>{{"progressive JPEG", made_jpeg(photo_, true)},
                                                        {"arithmetic JPEG", arithmetic_jpeg(photo_)},
                                                        {"PNG", written_png(photo_)},
                                                        {"TIFF", written_tiff(photo_)},
                                                        {"WebP", written_webp(photo_)},
                                                        {"lossy WebP", lossy_webp(photo_, 80)}})
    expect_no_damage(name, [&file = file] { read_photo(file); });
}

TEST_F(PhotoMemory, LittleOfItIsNoDamageToARecord) {
  const std::string file = made_jpeg(photo_, true);
  std::vector<uint8_t> pixels(1024 * 1024 * 3);
  expect_no_damage("a window", [&] {
    WindowDecoder decoder;
    decoder.open(file);
    decoder.decode({0, 0, 1024, 1024}, 3, pixels.data());
  });
}

TEST_F(PhotoMemory, TheWriterReportsThatMemoryIsShort) {
  const Photo photo = quadrants(4096, 1024, kFourColours);
  EXPECT_EQ(outcome_with(0, [&] { jpeg_of(photo, {}); }), kNoMemory);
}

}  // namespace
}  // namespace owt::photo_memory_test

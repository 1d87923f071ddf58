// Reads any bytes as a tar file, its members as tar files too, and as a compressed one.
#include "data/prepare/tar.h"
#include "tests/fuzz/input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t count) {
  const owt::MemoryFile file(bytes, count);
  owt::try_reading([&] {
    for (const owt::TarMember& member : owt::tar_members(file.path())) {
      owt::promise(member.offset <= count && member.bytes <= count - member.offset, "every member lies in the file");
      owt::try_reading([&] {
        for (const owt::TarMember& inner : owt::tar_members(file.path(), member.offset, member.bytes))
          owt::promise(inner.offset >= member.offset && inner.bytes <= member.bytes &&
                           inner.offset - member.offset <= member.bytes - inner.bytes,
                       "members of a member lie in it");
      });
    }
  });
  return 0;
}

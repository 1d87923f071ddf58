#include "src/comm/nccl.h"

namespace owt {
namespace {

constexpr char kNotBuilt[] = "this program was built without the CUDA back-end";

}  // namespace

NcclId make_nccl_id(Cpu) { fail(kNotBuilt); }
std::unique_ptr<Communicator> make_nccl_communicator(Cpu, const NcclMember&) { fail(kNotBuilt); }

}  // namespace owt

// NcclLibrary for static programs such as hvdrun-agent, which can load no library.
#include "runtime/nccl/nccl_library.h"

namespace hvd {

Result<std::shared_ptr<const NcclLibrary>> NcclLibrary::load(const std::string&) {
  return Error(Code::kInvalid, "this program is static and can load no NCCL; use libhvd.so");
}

std::string NcclLibrary::text() const {
  return "no NCCL";
}

Result<void> NcclLibrary::check(NcclCode, const char* function, NcclHandle) const {
  return Error(Code::kInternal, std::string(function) + ": there is no NCCL");
}

}  // namespace hvd

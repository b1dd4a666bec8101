// Device for builds without cuda.h, and for static programs such as hvdrun-agent, which can load no library.
#include "runtime/device/device.h"

namespace hvd {
namespace {

Error none() {
  return Error(Code::kInvalid,
               "this build can use no GPU: it was made without CUDA's headers (cuda.h), or is a static program; "
               "build again where the CUDA toolkit is, with -DHVD_CUDA=on");
}

}  // namespace

Result<std::shared_ptr<Device>> Device::open(int, const std::string&) {
  return none();
}

Result<std::string> Device::describe_all(const std::string&) {
  return none();
}

}  // namespace hvd

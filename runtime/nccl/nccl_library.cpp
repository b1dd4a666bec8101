#include "runtime/nccl/nccl_library.h"

namespace hvd {
namespace {

constexpr const char* kName = "libnccl.so.2";

std::string version_text(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

// Returns what to look at, for codes that say little by themselves. `last` is what NCCL said last.
const char* advice(NcclCode code, std::string_view last) {
  switch (code) {
    case NcclCode::kUnhandledCudaError:
    case NcclCode::kSystemError:
    case NcclCode::kInternalError:
      return "; NCCL_DEBUG=INFO shows more";
    case NcclCode::kInvalidUsage:
      // It has other reasons too, such as an NCCL_SOCKET_IFNAME that names no interface.
      return last.empty() || last.find("Duplicate GPU") != std::string_view::npos
                 ? "; it is so where two ranks have one GPU; see hvdrun --gpus"
                 : "";
    case NcclCode::kRemoteError:
    case NcclCode::kTimeout:
      return "; another rank, or the way to it, is gone";
    default:
      return "";
  }
}

// A file that the user names counts, else the one that the process has already, which is most often torch's.
Result<DynLib> open_file(const std::string& path) {
  if (path.empty()) {
    if (auto loaded = DynLib::find_loaded(kName, DynLib::Scope::kStays); loaded.ok()) {
      return loaded;
    }
  }
  return DynLib::open(path.empty() ? kName : path, DynLib::Scope::kStays);
}

}  // namespace

Result<std::shared_ptr<const NcclLibrary>> NcclLibrary::load(const std::string& path) {
  auto file = open_file(path);
  if (!file.ok()) {
    return Error(Code::kNotFound, "no NCCL: " + file.error().message() +
                                      "; name its file in HVD_NCCL_LIBRARY: the package nvidia-nccl-cu13 has it in "
                                      "site-packages/nvidia/nccl/lib/libnccl.so.2");
  }
  std::shared_ptr<NcclLibrary> made(new NcclLibrary(std::move(file).value()));
  HVD_TRY(made->read_version());
  HVD_TRY(made->take_functions());
  return std::shared_ptr<const NcclLibrary>(std::move(made));
}

Result<void> NcclLibrary::read_version() {
  HVD_TRY(file_.take("ncclGetErrorString", calls_.get_error_string));
  HVD_TRY(file_.take("ncclGetVersion", calls_.get_version));
  HVD_TRY(check(calls_.get_version(&version_), "ncclGetVersion", nullptr));
  if (version_ < kOldestNccl) {
    return Error(Code::kInvalid, text() + " is too old; update it to " + version_text(kOldestNccl) + " or later");
  }
  return {};
}

Result<void> NcclLibrary::take_functions() {
#define HVD_NCCL_TAKE(result, member, symbol, parameters) HVD_TRY(file_.take(symbol, calls_.member));
  HVD_NCCL_FUNCTIONS(HVD_NCCL_TAKE)
#undef HVD_NCCL_TAKE
  const bool has_memory = file_.take("ncclMemAlloc", calls_.mem_alloc).ok() &&
                          file_.take("ncclMemFree", calls_.mem_free).ok() &&
                          file_.take("ncclCommRegister", calls_.comm_register).ok() &&
                          file_.take("ncclCommDeregister", calls_.comm_deregister).ok();
  if (!has_memory) {
    calls_.mem_alloc = nullptr;
  }
  return {};
}

std::string NcclLibrary::text() const {
  return "NCCL " + version_text(version_) + ", " + file_.path();
}

Result<void> NcclLibrary::check(NcclCode code, const char* function, NcclHandle comm) const {
  if (code == NcclCode::kSuccess || code == NcclCode::kInProgress) {
    return {};
  }
  const char* said = calls_.get_last_error != nullptr ? calls_.get_last_error(comm) : nullptr;
  const std::string_view last = said != nullptr ? said : "";
  // These codes may mean the end of another rank, which can be known better elsewhere.
  const bool is_of_others =
      code == NcclCode::kRemoteError || code == NcclCode::kSystemError || code == NcclCode::kTimeout;
  return Error(is_of_others ? Code::kLostPeer : Code::kSystem,
               std::string(function) + ": " + calls_.get_error_string(code) +
                   (last.empty() ? "" : " (NCCL last said: " + std::string(last) + ")") + advice(code, last));
}

}  // namespace hvd

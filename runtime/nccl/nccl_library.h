// NcclLibrary: NCCL as it is on this machine, loaded when it is wanted and never linked. no_nccl.cpp stands for it in
// programs that are static and can load no library. It stays until the process ends, since it has threads of its own.
//
// Thread: any, as NCCL's functions are.
#pragma once

#include <memory>
#include <string>

#include "runtime/base/dyn_lib.h"
#include "runtime/base/result.h"
#include "runtime/nccl/nccl_abi.h"

namespace hvd {

class NcclLibrary {
 public:
  // The one that this process has loaded already, as PyTorch does, since two in one process would not know of each
  // other; else `path` where there is one, else what the loader finds as libnccl.so.2. kNotFound tells what was looked
  // for, kInvalid that it is older than 2.18.
  static Result<std::shared_ptr<const NcclLibrary>> load(const std::string& path);

  [[nodiscard]] const NcclFunctions& calls() const { return calls_; }
  // 22703 is 2.27.3.
  [[nodiscard]] int version() const { return version_; }
  // Whether it gives out memory and registers it: since 2.19.
  [[nodiscard]] bool has_memory() const { return calls_.mem_alloc != nullptr; }
  // "NCCL 2.27.3, /usr/lib/libnccl.so.2".
  [[nodiscard]] std::string text() const;
  // kLostPeer for what may be the end of another rank, else kSystem. `comm`: of which the library is asked for more;
  // may be null.
  Result<void> check(NcclCode code, const char* function, NcclHandle comm) const;

 private:
  explicit NcclLibrary(DynLib file) : file_(std::move(file)) {}
  Result<void> take_comms();
  Result<void> take_collectives();
  Result<void> read_version();

  // constant after construction
  DynLib file_;
  NcclFunctions calls_;
  int version_ = 0;
};

}  // namespace hvd

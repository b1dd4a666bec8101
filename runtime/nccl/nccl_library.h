// NcclLibrary is the NCCL of this machine, loaded when needed and never linked. no_nccl.cpp replaces it in static
// programs, which can load no library. It stays loaded until the process ends, since it has threads of its own.
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
  // Returns the NCCL that this process has loaded already (PyTorch loads one), because two in one process would not
  // know of each other. Otherwise it loads `path` if that is set, else what the loader finds as libnccl.so.2. kNotFound
  // names what was searched for; kInvalid means that it is older than 2.18.
  static Result<std::shared_ptr<const NcclLibrary>> load(const std::string& path);

  [[nodiscard]] const NcclFunctions& calls() const { return calls_; }
  // The version number; 22703 is 2.27.3.
  [[nodiscard]] int version() const { return version_; }
  // Whether it allocates and registers memory: since 2.19.
  [[nodiscard]] bool has_memory() const { return calls_.mem_alloc != nullptr; }
  // Returns "NCCL 2.27.3, /usr/lib/libnccl.so.2".
  [[nodiscard]] std::string text() const;
  // Turns NCCL's code into a result: kLostPeer for what may be the end of another rank, otherwise kSystem. With it
  // comes what NCCL said last, for which it takes any `comm`, also null.
  Result<void> check(NcclCode code, const char* function, NcclHandle comm) const;

 private:
  explicit NcclLibrary(DynLib file) : file_(std::move(file)) {}
  Result<void> take_functions();
  Result<void> read_version();

  // constant after construction
  DynLib file_;
  NcclFunctions calls_;
  int version_ = 0;
};

}  // namespace hvd

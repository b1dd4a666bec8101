// NcclBuffer is GPU memory from ncclMemAlloc, registered with a communicator (ncclCommRegister). NCCL then needs no
// intermediate copy when it moves the data between GPUs and network cards. It pays for memory that is used again and
// again.
//
// If NCCL has no such memory (2.18) or refuses it, ordinary memory serves. Thread: one at a time. The destructor may
// wait for the device, so a thread that must not wait must not run it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "runtime/base/result.h"
#include "runtime/nccl/nccl_comm.h"

namespace hvd {

class NcclBuffer {
 public:
  // Call it only with a communicator whose library has such memory (NcclLibrary::has_memory). It is local: no other
  // rank needs to call it. The memory is not registered yet.
  static Result<NcclBuffer> make(std::shared_ptr<NcclComm> comm, std::size_t size_bytes);
  // Registers it; local, too. After a failure the caller decides when the memory is freed.
  Result<void> enroll();
  ~NcclBuffer();
  NcclBuffer(NcclBuffer&& other) noexcept
      : comm_(std::move(other.comm_)),
        data_(std::exchange(other.data_, nullptr)),
        size_bytes_(other.size_bytes_),
        registration_(std::exchange(other.registration_, nullptr)) {}
  NcclBuffer& operator=(NcclBuffer&&) = delete;
  NcclBuffer(const NcclBuffer&) = delete;
  NcclBuffer& operator=(const NcclBuffer&) = delete;

  [[nodiscard]] std::uint8_t* data() const { return static_cast<std::uint8_t*>(data_); }
  [[nodiscard]] std::size_t size_bytes() const { return size_bytes_; }

 private:
  NcclBuffer(std::shared_ptr<NcclComm> comm, void* data, std::size_t size_bytes)
      : comm_(std::move(comm)), data_(data), size_bytes_(size_bytes) {}

  std::shared_ptr<NcclComm> comm_;
  void* data_ = nullptr;
  std::size_t size_bytes_ = 0;
  void* registration_ = nullptr;
};

}  // namespace hvd

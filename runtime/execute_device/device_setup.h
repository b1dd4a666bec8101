// These types let the ranks of a process set agree on what moves data between their GPUs: NCCL, or their memory on the
// host. Each rank sends a description of what it has, and all come to the same plan. Thread: engine only.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/backend/backend.h"
#include "runtime/core/op_kind.h"
#include "runtime/device/device.h"
#include "runtime/nccl/nccl_comm.h"

namespace hvd {

// The settings of HOROVOD_GPU_OPERATIONS and similar variables.
struct DeviceOptions {
  std::string nccl_library;                        // the file of the library; empty: see NcclLibrary
  std::array<bool, kOpKindCount> uses_nccl = [] {  // by kind
    std::array<bool, kOpKindCount> all{};
    all.fill(true);
    return all;
  }();
  bool stays_on_host = false;  // NCCL is not used between hosts, because nothing that it sends is encrypted
  // An operation is reported done when it is launched; the caller's stream waits for its end.
  bool completes_early = false;
  int usual_device = 0;  // the GPU of a rank that works on another's data before it has any of its own: its local rank
};

// DeviceFacts describes what a rank has.
//
// On the wire, little-endian: u8 has_device | u8 has_kernels | u16 kinds | i32 nccl | 16 bytes uuid | u32 length of why
// | why | zeros. It has kBytes on all ranks, so that they need not agree on sizes first.
struct DeviceFacts {
  static constexpr std::size_t kBytes = 256;

  std::uint8_t has_device = 0;
  std::uint8_t has_kernels = 0;
  std::uint16_t kinds = 0;  // bits: the kinds for which the rank wants NCCL
  std::int32_t nccl = 0;    // version; 0: none
  DeviceUuid uuid{};
  std::string why{};  // why there is no NCCL, device or kernels; its end is cut off on the wire if it is too long

  [[nodiscard]] std::string encode() const;
  // Refuses what is no such message.
  static Result<DeviceFacts> decode(std::string_view bytes);
};

struct DevicePlan {
  std::uint16_t kinds = 0;   // bits: the kinds that NCCL does; 0: none, and there is no communicator
  bool shares_gpus = false;  // some ranks use the same GPU
  bool has_nccl = false;     // all ranks can load it, whether it is used or not
  std::string notice;        // why something does not use NCCL; empty: everything is as requested

  [[nodiscard]] bool uses(OpKind kind) const { return (kinds >> static_cast<unsigned>(kind) & 1U) != 0; }
};

// Pure. `ranks` are the ranks' numbers in the job, for the notice.
DevicePlan plan_devices(std::span<const DeviceFacts> facts, const std::vector<int>& ranks);

// DeviceParty is the group that agrees: the ranks of a process set, and the backend that moves their data on the host.
struct DeviceParty {
  const std::vector<int>& ranks;  // ranks of the job, ascending
  int index = 0;                  // this rank's place among them
  Backend& host;
};

// Makes this rank's facts; an error's text goes to `why`.
DeviceFacts make_facts(const DeviceOptions& options, const Result<std::shared_ptr<Device>>& device,
                       const Result<std::shared_ptr<const NcclLibrary>>& nccl);
Result<std::vector<DeviceFacts>> exchange_facts(const DeviceParty& party, const DeviceFacts& own, Interrupt& interrupt);

// Makes the communicator; all ranks of the party call it. A rank that fails has to end the job, so that the others do
// not wait for it. With `may_fail`, as for ranks that share a GPU, all ranks agree on the outcome instead, and an error
// names the first that failed.
Result<std::shared_ptr<NcclComm>> make_comm(const DeviceParty& party, const std::shared_ptr<Device>& device,
                                            const std::shared_ptr<const NcclLibrary>& nccl, bool may_fail,
                                            Duration limit, Interrupt& interrupt);
// Returns the error text of the first rank of the party that failed; empty if all are well.
Result<std::string> agree(const DeviceParty& party, const Result<void>& own, Interrupt& interrupt);

}  // namespace hvd

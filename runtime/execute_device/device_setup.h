// DeviceSetup: how the ranks of a process set agree on what moves data between their devices: NCCL, or their memory on
// the host. Each tells what it has; all decide the same. Thread: engine only.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/backend/backend.h"
#include "runtime/core/op_kind.h"
#include "runtime/device/device.h"
#include "runtime/nccl/nccl_comm.h"

namespace hvd {

// What HOROVOD_GPU_OPERATIONS and its like say.
struct DeviceOptions {
  std::string nccl_library;                        // its file; empty: see NcclLibrary
  std::array<bool, kOpKindCount> uses_nccl = [] {  // by kind
    std::array<bool, kOpKindCount> all{};
    all.fill(true);
    return all;
  }();
  bool completes_early = false;  // an operation is done when it is launched, and the caller's stream waits for its end
};

// What a rank has; the same size for all, since it travels as it is.
struct DeviceCard {
  std::uint8_t has_device = 0;
  std::uint8_t has_kernels = 0;
  std::uint16_t kinds = 0;  // bits: those that it wants done by NCCL
  std::int32_t nccl = 0;    // version; 0: none
  DeviceUuid uuid{};
  std::array<char, 232> why{};  // there is no NCCL, device or kernels
};
static_assert(sizeof(DeviceCard) == 256);

struct DevicePlan {
  std::uint16_t kinds = 0;   // bits: those that NCCL does; 0: none, and there is no communicator
  bool shares_gpus = false;  // some ranks have one GPU
  std::string notice;        // why something does not go by NCCL; empty: it is as it was asked for

  [[nodiscard]] bool uses(OpKind kind) const { return (kinds >> static_cast<unsigned>(kind) & 1U) != 0; }
};

// Pure. `ranks`: of the job, as they are called in the notice.
DevicePlan plan_devices(std::span<const DeviceCard> cards, const std::vector<int>& ranks);

// Who agrees: the ranks of a process set, over what moves their data on the host.
struct DeviceParty {
  const std::vector<int>& ranks;  // of the job, ascending
  int index = 0;                  // this one's place among them
  Backend& host;
};

// `why` of an error, as much as there is room.
DeviceCard make_card(const DeviceOptions& options, const Result<std::shared_ptr<Device>>& device,
                     const Result<std::shared_ptr<const NcclLibrary>>& nccl);
Result<std::vector<DeviceCard>> exchange_cards(const DeviceParty& party, const DeviceCard& own, Interrupt& interrupt);

// The communicator, made by all. A rank that fails has to end the job, so that the others do not wait for it; where it
// `may_fail`, as with ranks that share a GPU, all agree, and an error names the first.
Result<std::shared_ptr<NcclComm>> make_comm(const DeviceParty& party, const std::shared_ptr<Device>& device,
                                            const std::shared_ptr<const NcclLibrary>& nccl, bool may_fail,
                                            Duration limit, Interrupt& interrupt);
// Whether all ranks of the party are well; the first's words where one is not.
Result<std::string> agree(const DeviceParty& party, const Result<void>& own, Interrupt& interrupt);

}  // namespace hvd

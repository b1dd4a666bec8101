#include "runtime/execute_device/device_setup.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>

#include <stdlib.h>

#include "runtime/device/kernels.h"

namespace hvd {
namespace {

// Answer is what each rank sends about whether a step succeeded.
struct Answer {
  std::uint8_t is_well = 1;
  std::array<char, 255> why{};
};
static_assert(sizeof(Answer) == 256);

template <std::size_t size>
void put(std::array<char, size>& text, const std::string& words) {
  words.copy(text.data(), size - 1);
}

std::string version_text(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

std::string rank_text(int rank) {
  return "rank " + std::to_string(rank);
}

template <typename T>
Result<std::vector<T>> exchange(const DeviceParty& party, const T& own, Interrupt& interrupt) {
  std::vector<T> all(party.ranks.size());
  const std::vector<std::size_t> sizes(party.ranks.size(), sizeof(T));
  HVD_TRY(party.host.allgather(&own, sizes, all.data(), interrupt));
  return all;
}

// Returns two ranks that share a GPU, by their places; nothing if each has its own.
std::optional<std::pair<std::size_t, std::size_t>> shared_gpu(std::span<const DeviceFacts> facts) {
  std::map<DeviceUuid, std::size_t> first;
  for (std::size_t i = 0; i < facts.size(); ++i) {
    if (const auto [at, is_new] = first.emplace(facts[i].uuid, i); !is_new) {
      return std::pair(at->second, i);
    }
  }
  return std::nullopt;
}

std::string why_not(std::span<const DeviceFacts> facts, const std::vector<int>& ranks) {
  for (std::size_t i = 0; i < facts.size(); ++i) {
    const DeviceFacts& rank_facts = facts[i];
    if (rank_facts.has_device == 0 || rank_facts.has_kernels == 0 || rank_facts.nccl == 0) {
      return rank_text(ranks[i]) + ": " +
             std::string(rank_facts.why.data(), ::strnlen(rank_facts.why.data(), rank_facts.why.size()));
    }
    if (rank_facts.nccl != facts.front().nccl) {
      return rank_text(ranks.front()) + " has NCCL " + version_text(facts.front().nccl) + ", but " +
             rank_text(ranks[i]) + " has NCCL " + version_text(rank_facts.nccl);
    }
  }
  const auto shared = shared_gpu(facts);
  if (shared && facts.front().nccl < kNcclSharesGpus) {
    return rank_text(ranks[shared->first]) + " and " + rank_text(ranks[shared->second]) +
           " share a GPU, which NCCL can from 2.30 on, and this is " + version_text(facts.front().nccl);
  }
  return {};
}

}  // namespace

DevicePlan plan_devices(std::span<const DeviceFacts> facts, const std::vector<int>& ranks) {
  DevicePlan plan;
  plan.kinds = 0xffff;
  for (const DeviceFacts& rank_facts : facts) {
    plan.kinds = static_cast<std::uint16_t>(plan.kinds & rank_facts.kinds);
  }
  if (plan.kinds == 0) {
    return plan;  // as the settings request
  }
  plan.notice = why_not(facts, ranks);
  if (!plan.notice.empty()) {
    plan.kinds = 0;
    return plan;
  }
  plan.shares_gpus = shared_gpu(facts).has_value();
  return plan;
}

DeviceFacts make_facts(const DeviceOptions& options, const Result<std::shared_ptr<Device>>& device,
                       const Result<std::shared_ptr<const NcclLibrary>>& nccl) {
  DeviceFacts rank_facts;
  for (std::size_t kind = 0; kind < options.uses_nccl.size(); ++kind) {
    rank_facts.kinds = static_cast<std::uint16_t>(rank_facts.kinds | (options.uses_nccl[kind] ? 1U << kind : 0U));
  }
  if (!nccl.ok()) {
    put(rank_facts.why, nccl.error().message());
  } else {
    rank_facts.nccl = nccl.value()->version();
  }
  if (!device.ok()) {
    put(rank_facts.why, device.error().message());
    return rank_facts;
  }
  rank_facts.has_device = 1;
  rank_facts.uuid = device.value()->uuid();
  const auto kernel = device.value()->kernel(move_kernel(Dtype::kFloat32, Dtype::kFloat32, 1.0, true));
  rank_facts.has_kernels = kernel.ok() ? 1 : 0;
  if (!kernel.ok() && nccl.ok()) {
    put(rank_facts.why, kernel.error().message());
  }
  return rank_facts;
}

Result<std::vector<DeviceFacts>> exchange_facts(const DeviceParty& party, const DeviceFacts& own,
                                                Interrupt& interrupt) {
  return exchange(party, own, interrupt);
}

Result<std::string> agree(const DeviceParty& party, const Result<void>& own, Interrupt& interrupt) {
  Answer answer;
  if (!own.ok()) {
    answer.is_well = 0;
    put(answer.why, own.error().message());
  }
  HVD_TRY_ASSIGN(const std::vector<Answer> all, exchange(party, answer, interrupt));
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].is_well == 0) {
      return rank_text(party.ranks[i]) + ": " + std::string(all[i].why.data(), ::strnlen(all[i].why.data(), 255));
    }
  }
  return std::string();
}

Result<std::shared_ptr<NcclComm>> make_comm(const DeviceParty& party, const std::shared_ptr<Device>& device,
                                            const std::shared_ptr<const NcclLibrary>& nccl, bool may_fail,
                                            Duration limit, Interrupt& interrupt) {
  Result<NcclId> id = NcclId();
  if (party.index == 0) {
    id = NcclComm::make_id(*nccl, *device);
  }
  HVD_TRY_ASSIGN(std::string why, agree(party, id.ok() ? Result<void>() : Result<void>(id.error()), interrupt));
  if (!why.empty()) {
    return Error(Code::kSystem, "NCCL could not begin: " + why);
  }
  NcclId agreed = id.value();
  HVD_TRY(party.host.broadcast(&agreed, sizeof agreed, 0, interrupt));
  const NcclComm::Place place{party.index, static_cast<int>(party.ranks.size())};
  auto made = NcclComm::make(nccl, device, agreed, place, interrupt, Deadline::after(limit));
  if (!made.ok() && !may_fail) {
    return made.error().with_context("no NCCL communicator could be made");
  }
  if (may_fail) {
    HVD_TRY(interrupt.check());
    HVD_TRY_ASSIGN(why, agree(party, made.ok() ? Result<void>() : Result<void>(made.error()), interrupt));
  }
  return why.empty() ? std::move(made) : Error(Code::kSystem, "no NCCL communicator could be made: " + why);
}

}  // namespace hvd

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
std::optional<std::pair<std::size_t, std::size_t>> shared_gpu(std::span<const DeviceCard> cards) {
  std::map<DeviceUuid, std::size_t> first;
  for (std::size_t i = 0; i < cards.size(); ++i) {
    if (const auto [at, is_new] = first.emplace(cards[i].uuid, i); !is_new) {
      return std::pair(at->second, i);
    }
  }
  return std::nullopt;
}

std::string why_not(std::span<const DeviceCard> cards, const std::vector<int>& ranks) {
  for (std::size_t i = 0; i < cards.size(); ++i) {
    const DeviceCard& card = cards[i];
    if (card.has_device == 0 || card.has_kernels == 0 || card.nccl == 0) {
      return rank_text(ranks[i]) + ": " + std::string(card.why.data(), ::strnlen(card.why.data(), card.why.size()));
    }
    if (card.nccl != cards.front().nccl) {
      return rank_text(ranks.front()) + " has NCCL " + version_text(cards.front().nccl) + ", but " +
             rank_text(ranks[i]) + " has NCCL " + version_text(card.nccl);
    }
  }
  const auto shared = shared_gpu(cards);
  if (shared && cards.front().nccl < kNcclSharesGpus) {
    return rank_text(ranks[shared->first]) + " and " + rank_text(ranks[shared->second]) +
           " share a GPU, which NCCL can from 2.30 on, and this is " + version_text(cards.front().nccl);
  }
  return {};
}

}  // namespace

DevicePlan plan_devices(std::span<const DeviceCard> cards, const std::vector<int>& ranks) {
  DevicePlan plan;
  plan.kinds = 0xffff;
  for (const DeviceCard& card : cards) {
    plan.kinds = static_cast<std::uint16_t>(plan.kinds & card.kinds);
  }
  if (plan.kinds == 0) {
    return plan;  // as the settings request
  }
  plan.notice = why_not(cards, ranks);
  if (!plan.notice.empty()) {
    plan.kinds = 0;
    return plan;
  }
  plan.shares_gpus = shared_gpu(cards).has_value();
  return plan;
}

DeviceCard make_card(const DeviceOptions& options, const Result<std::shared_ptr<Device>>& device,
                     const Result<std::shared_ptr<const NcclLibrary>>& nccl) {
  DeviceCard card;
  for (std::size_t kind = 0; kind < options.uses_nccl.size(); ++kind) {
    card.kinds = static_cast<std::uint16_t>(card.kinds | (options.uses_nccl[kind] ? 1U << kind : 0U));
  }
  if (!nccl.ok()) {
    put(card.why, nccl.error().message());
  } else {
    card.nccl = nccl.value()->version();
  }
  if (!device.ok()) {
    put(card.why, device.error().message());
    return card;
  }
  card.has_device = 1;
  card.uuid = device.value()->uuid();
  const auto kernel = device.value()->kernel(move_kernel(Dtype::kFloat32, Dtype::kFloat32, 1.0, true));
  card.has_kernels = kernel.ok() ? 1 : 0;
  if (!kernel.ok() && nccl.ok()) {
    put(card.why, kernel.error().message());
  }
  return card;
}

Result<std::vector<DeviceCard>> exchange_cards(const DeviceParty& party, const DeviceCard& own, Interrupt& interrupt) {
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

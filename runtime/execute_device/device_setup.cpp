#include "runtime/execute_device/device_setup.h"

#include <algorithm>
#include <map>
#include <optional>

#include "runtime/base/bytes.h"
#include "runtime/device/kernels.h"

namespace hvd {
namespace {

// An answer says whether a step has succeeded: u8 is_well | u32 length | the error's text | zeros.
constexpr std::size_t kAnswerBytes = 256;

// Appends as much of the text as fits, and zeros to the full size.
std::string with_text(ByteWriter writer, std::string_view words, std::size_t size_bytes) {
  writer.text(words.substr(0, size_bytes - writer.str().size() - sizeof(std::uint32_t)));
  std::string message = std::move(writer).str();
  message.resize(size_bytes, '\0');
  return message;
}

std::string version_text(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

std::string rank_text(int rank) {
  return "rank " + std::to_string(rank);
}

// Returns the messages of all ranks of the party, which have the same size.
Result<std::vector<std::string>> exchange(const DeviceParty& party, const std::string& own, Interrupt& interrupt) {
  const std::vector<std::size_t> sizes(party.ranks.size(), own.size());
  std::string joined(party.ranks.size() * own.size(), '\0');
  HVD_TRY(party.host.allgather(own.data(), sizes, joined.data(), interrupt));
  std::vector<std::string> all;
  for (std::size_t at = 0; at < joined.size(); at += own.size()) {
    all.push_back(joined.substr(at, own.size()));
  }
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
      return rank_text(ranks[i]) + ": " + rank_facts.why;
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

std::string DeviceFacts::encode() const {
  ByteWriter writer;
  writer.u8(has_device).u8(has_kernels).u16(kinds).i32(nccl).raw(uuid.data(), uuid.size());
  return with_text(std::move(writer), why, kBytes);
}

Result<DeviceFacts> DeviceFacts::decode(std::string_view bytes) {
  ByteReader reader(bytes);
  DeviceFacts facts;
  facts.has_device = reader.u8();
  facts.has_kernels = reader.u8();
  facts.kinds = reader.u16();
  facts.nccl = reader.i32();
  const Bytes uuid = reader.take(facts.uuid.size());
  std::copy(uuid.begin(), uuid.end(), facts.uuid.begin());
  facts.why = reader.text();
  if (!reader.ok() || bytes.size() != kBytes) {
    return Error(Code::kProtocol, "what came is no description of a device");
  }
  return facts;
}

DevicePlan plan_devices(std::span<const DeviceFacts> facts, const std::vector<int>& ranks) {
  DevicePlan plan;
  plan.kinds = 0xffff;
  plan.has_nccl = true;
  for (const DeviceFacts& rank_facts : facts) {
    plan.has_nccl = plan.has_nccl && rank_facts.nccl != 0;
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
    rank_facts.why = nccl.error().message();
  } else {
    rank_facts.nccl = nccl.value()->version();
  }
  if (!device.ok()) {
    rank_facts.why = device.error().message();
    return rank_facts;
  }
  rank_facts.has_device = 1;
  rank_facts.uuid = device.value()->info().uuid;
  const auto kernel = device.value()->kernel(move_kernel(Dtype::kFloat32, Dtype::kFloat32, 1.0, true));
  rank_facts.has_kernels = kernel.ok() ? 1 : 0;
  if (!kernel.ok() && nccl.ok()) {
    rank_facts.why = kernel.error().message();
  }
  return rank_facts;
}

Result<std::vector<DeviceFacts>> exchange_facts(const DeviceParty& party, const DeviceFacts& own,
                                                Interrupt& interrupt) {
  HVD_TRY_ASSIGN(const std::vector<std::string> messages, exchange(party, own.encode(), interrupt));
  std::vector<DeviceFacts> all;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    auto facts = DeviceFacts::decode(messages[i]);
    if (!facts.ok()) {
      return facts.error().with_context(rank_text(party.ranks[i]));
    }
    all.push_back(std::move(facts).value());
  }
  return all;
}

Result<std::string> agree(const DeviceParty& party, const Result<void>& own, Interrupt& interrupt) {
  const std::string why = own.ok() ? std::string() : own.error().message();
  HVD_TRY_ASSIGN(const std::vector<std::string> all,
                 exchange(party, with_text(ByteWriter().u8(own.ok() ? 1 : 0), why, kAnswerBytes), interrupt));
  for (std::size_t i = 0; i < all.size(); ++i) {
    ByteReader reader(all[i]);
    const bool is_well = reader.u8() != 0;
    const std::string text = reader.text();
    if (!is_well || !reader.ok()) {
      return rank_text(party.ranks[i]) + ": " + text;
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

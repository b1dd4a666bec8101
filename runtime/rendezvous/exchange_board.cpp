#include "runtime/rendezvous/exchange_board.h"

#include "runtime/base/check.h"
#include "runtime/rendezvous/store_wire.h"

namespace hvd {
namespace {

// The size of a text in a message body: its length, then its bytes (base/bytes.h).
std::size_t text_bytes(const std::string& text) {
  return sizeof(std::uint32_t) + text.size();
}

}  // namespace

ExchangeBoard::ExchangeBoard(int size) : size_(size) {
  HVD_CHECK(size > 0);
}

Result<void> ExchangeBoard::check(int rank, const std::string& key, const std::string& value) const {
  const std::string who = "rank " + std::to_string(rank);
  if (rank < 0 || rank >= size_) {
    return Error(Code::kInvalid, who + " is not one of the " + std::to_string(size_) + " ranks of this job");
  }
  if (key.empty() || key.size() > store_wire::kMaxKeyBytes) {
    return Error(Code::kInvalid, who + " posted a key of " + std::to_string(key.size()) + " bytes; 1 to " +
                                     std::to_string(store_wire::kMaxKeyBytes) + " are allowed");
  }
  if (value.size() > store_wire::kMaxValueBytes) {
    return Error(Code::kInvalid, who + " posted " + std::to_string(value.size()) + " bytes under '" + key +
                                     "', more than the limit of " + std::to_string(store_wire::kMaxValueBytes));
  }
  const auto found = open_.find(key);
  if (found == open_.end()) {
    if (open_.size() >= kMaxOpenKeys) {
      return Error(Code::kResource,
                   who + " posted '" + key + "' while " + std::to_string(open_.size()) + " other exchanges are open");
    }
    return {};
  }
  if (found->second.values[static_cast<std::size_t>(rank)].has_value()) {
    return Error(Code::kInvalid, who + " posted '" + key + "' twice");
  }
  // All values travel in one Exchanged frame.
  if (found->second.bytes + text_bytes(value) > store_wire::kSpec.max_length) {
    return Error(Code::kResource, "the values under '" + key + "' are more than one frame holds");
  }
  return {};
}

Result<std::optional<ExchangeBoard::Values>> ExchangeBoard::post(int rank, const std::string& key, std::string value) {
  HVD_TRY(check(rank, key, value));
  Exchange& exchange = open_[key];
  if (exchange.values.empty()) {
    exchange.values.resize(static_cast<std::size_t>(size_));
    exchange.bytes = text_bytes(key) + sizeof(std::uint32_t);
  }
  exchange.bytes += text_bytes(value);
  exchange.values[static_cast<std::size_t>(rank)] = std::move(value);
  if (++exchange.posted < size_) {
    return std::optional<Values>();
  }
  Values all;
  all.reserve(exchange.values.size());
  for (std::optional<std::string>& posted : exchange.values) {
    all.push_back(std::move(*posted));
  }
  open_.erase(key);
  return std::optional<Values>(std::move(all));
}

std::vector<int> ExchangeBoard::missing(const std::string& key) const {
  std::vector<int> ranks;
  const auto found = open_.find(key);
  if (found == open_.end()) {
    return ranks;
  }
  for (int rank = 0; rank < size_; ++rank) {
    if (!found->second.values[static_cast<std::size_t>(rank)].has_value()) {
      ranks.push_back(rank);
    }
  }
  return ranks;
}

}  // namespace hvd

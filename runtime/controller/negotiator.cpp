#include "runtime/controller/negotiator.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "runtime/base/text.h"
#include "runtime/core/shape.h"

namespace hvd {
namespace {

bool is_same(double a, double b) {
  return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
}

std::string rank_text(int rank) {
  return "rank " + std::to_string(rank);
}

// Pair formats "<heading>: rank 0 <verb> <a>, but rank 1 <verb> <b> (tensor 'x')".
struct Pair {
  int rank_a;
  int rank_b;
  const std::string& name;

  [[nodiscard]] std::string text(const std::string& heading, const std::string& verb, const std::string& a,
                                 const std::string& b) const {
    return heading + ": " + rank_text(rank_a) + " " + verb + " " + a + ", but " + rank_text(rank_b) + " " + verb + " " +
           b + " (tensor '" + name + "')";
  }
};

std::string scales_text(const Request& request) {
  return formatted("prescale %.17g and postscale %.17g", request.prescale, request.postscale);
}

// Dimension 0 may differ between ranks for an allgather and an alltoall. Everything else must be the same, and so must
// all dimensions of other kinds.
bool shapes_agree(OpKind kind, const std::vector<std::int64_t>& a, const std::vector<std::int64_t>& b) {
  if (!has_own_rows(kind) || a.empty() || b.empty()) {
    return a == b;
  }
  return std::equal(a.begin() + 1, a.end(), b.begin() + 1, b.end());
}

// Said is what one rank's request says about one tensor.
struct Said {
  Dtype dtype;
  const std::vector<std::int64_t>& shape;
  bool is_device;
};

const char* place_text(bool is_device) {
  return is_device ? "GPU" : "CPU";
}

std::string tensor_disagreement(const Pair& pair, OpKind kind, const Said& a, const Said& b) {
  if (a.dtype != b.dtype) {
    return pair.text("Mismatched data types", "had type", name_of(a.dtype), name_of(b.dtype));
  }
  if (!shapes_agree(kind, a.shape, b.shape)) {
    return pair.text("Mismatched " + std::string(name_of(kind)) + " tensor shapes", "sent a tensor of shape",
                     shape_text(a.shape), shape_text(b.shape)) +
           (has_own_rows(kind) ? "; only their first dimension may differ" : "");
  }
  if (a.is_device != b.is_device) {
    return pair.text("Mismatched CPU/GPU device selection", "specified device", place_text(a.is_device),
                     place_text(b.is_device));
  }
  return {};
}

std::string group_text(const Request& request) {
  return request.group.empty() ? "a tensor alone" : "a group of " + std::to_string(request.group.size() + 1);
}

std::string group_disagreement(int rank_a, const Request& a, int rank_b, const Request& b) {
  if (a.group.size() != b.group.size()) {
    return Pair{rank_a, rank_b, a.name}.text("Mismatched groups", "sent", group_text(a), group_text(b));
  }
  for (std::size_t i = 0; i < a.group.size(); ++i) {
    const GroupTensor& of_a = a.group[i];
    const GroupTensor& of_b = b.group[i];
    if (of_a.name != of_b.name) {
      const std::string verb = "has at place " + std::to_string(i + 2) + " of the group";
      return Pair{rank_a, rank_b, a.name}.text("Mismatched groups", verb, "'" + of_a.name + "'", "'" + of_b.name + "'");
    }
    std::string text =
        tensor_disagreement(Pair{rank_a, rank_b, of_a.name}, a.kind, {of_a.dtype, of_a.shape, of_a.is_device},
                            {of_b.dtype, of_b.shape, of_b.is_device});
    if (!text.empty()) {
      return text;
    }
  }
  return {};
}

// Returns why a tensor on which all ranks agree cannot be done; empty if it can.
std::string refusal(OpKind kind, int rank, const std::string& name, const std::vector<std::int64_t>& shape) {
  if (is_cut_by_rank(kind) && shape.empty()) {
    return std::string(name_of(kind)) + " of a scalar: " + rank_text(rank) + " sent a tensor of shape [] (tensor '" +
           name + "'); it needs at least one dimension";
  }
  return {};
}

// Returns the refusal in Horovod's wording. A joined rank could contribute nothing to these operations, but its result
// of them would be lost.
std::string join_refusal(const Request& request, int joined_rank) {
  std::string kind = lower_name_of(request.kind);
  kind.front() = *name_of(request.kind);
  return kind + " is not supported with Join at this time: " + rank_text(joined_rank) + " has joined (tensor '" +
         request.name + "')";
}

bool are_at_same_place(const Request& a, const Request& b) {
  const auto is_same_place = [](const GroupTensor& x, const GroupTensor& y) {
    return x.shared_at >= 0 && x.shared_at == y.shared_at;
  };
  return a.shared_at == b.shared_at &&
         std::equal(a.group.begin(), a.group.end(), b.group.begin(), b.group.end(), is_same_place);
}

std::vector<int> all_below(int size) {
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

std::string numbers_text(const std::vector<std::int32_t>& numbers) {
  std::string text;
  for (const std::int32_t number : numbers) {
    add_to_list(text, std::to_string(number));
  }
  return text;
}

std::string ranks_text(const std::vector<int>& ranks) {
  const bool is_run = ranks.back() - ranks.front() + 1 == static_cast<int>(ranks.size());
  return is_run ? std::to_string(ranks.front()) + " to " + std::to_string(ranks.back()) : numbers_text(ranks);
}

}  // namespace

std::string disagreement(int rank_a, const Request& a, int rank_b, const Request& b) {
  const Pair pair{rank_a, rank_b, a.name};
  if (a.kind != b.kind) {
    return pair.text("Mismatched operations", "did", name_of(a.kind), name_of(b.kind));
  }
  if (a.op != b.op) {
    return pair.text("Mismatched reduction operation", "sent reduction op", name_of(a.op), name_of(b.op));
  }
  if (!is_same(a.prescale, b.prescale) || !is_same(a.postscale, b.postscale)) {
    return pair.text("Mismatched prescale and/or postscale factors", "sent", scales_text(a), scales_text(b));
  }
  std::string text =
      tensor_disagreement(pair, a.kind, {a.dtype, a.shape, a.is_device}, {b.dtype, b.shape, b.is_device});
  if (!text.empty()) {
    return text;
  }
  if (a.root_rank != b.root_rank) {
    return pair.text("Mismatched " + std::string(name_of(a.kind)) + " root ranks", "specified root rank",
                     std::to_string(a.root_rank), std::to_string(b.root_rank));
  }
  if (a.numbers != b.numbers) {
    const std::string what = a.kind == OpKind::kSetAdd ? "the ranks " : "process set ";
    return pair.text("Mismatched process sets", "named", what + numbers_text(a.numbers),
                     what + numbers_text(b.numbers));
  }
  return group_disagreement(rank_a, a, rank_b, b);
}

Negotiator::Negotiator(int size) : Negotiator(all_below(size)) {}

Negotiator::Negotiator(std::vector<int> ranks)
    : ranks_(std::move(ranks)), size_(static_cast<int>(ranks_.size())), has_joined_(ranks_.size(), false) {
  HVD_CHECK(size_ > 0);
}

int Negotiator::index_of(int rank) const {
  const auto found = std::lower_bound(ranks_.begin(), ranks_.end(), rank);
  return found != ranks_.end() && *found == rank ? static_cast<int>(found - ranks_.begin()) : -1;
}

Result<void> Negotiator::add(int rank, Request request, const std::vector<int>* askers, std::uint64_t serial) {
  const int index = index_of(rank);
  if (index < 0) {
    return Error(Code::kProtocol, rank_text(rank) + " asked for '" + request.name + "' in a process set of others");
  }
  const auto at = static_cast<std::size_t>(index);
  if (has_joined_[at]) {
    return Error(Code::kProtocol, rank_text(rank) + " asked for '" + request.name + "' after it has joined");
  }
  if (request.kind == OpKind::kJoin) {
    join(at);
    if (joined_count_ == size_) {
      Ready all;
      all.request.kind = OpKind::kJoin;
      all.request.name = kJoinName;
      all.answer = rank;
      ready_.push_back(std::move(all));
      forget_joins();
    }
    return {};
  }
  const auto [it, is_new] = entries_.try_emplace(request.name);
  Entry& entry = it->second;
  if (is_new) {
    entry.first = request;
    wait_for(entry, askers);
    entry.generation = generation_;
    entry.serial = serial == 0 ? next_serial() : serial;
    entry.is_shared = request.kind == OpKind::kAllreduce && request.shared_at >= 0;
    ++fresh_incomplete_;
  } else if (entry.has_asked[at]) {
    return Error(Code::kProtocol, rank_text(rank) + " asked twice for tensor '" + request.name + "'");
  }
  entry.has_asked[at] = true;
  if (is_new || at < entry.priority_from) {
    entry.priority = request.priority;
    entry.priority_from = at;
  }
  entry.is_shared = entry.is_shared && are_at_same_place(entry.first, request);
  note_first_dims(entry, at, request);
  if (!is_new && !disagreement(0, entry.first, rank, request).empty()) {
    entry.different.emplace_back(index, request);
  }
  if (--entry.missing == 0) {
    complete(request.name);
  }
  return {};
}

void Negotiator::wait_for(Entry& entry, const std::vector<int>* askers) const {
  entry.has_asked.assign(static_cast<std::size_t>(size_), false);
  entry.missing = size_ - joined_count_;
  if (askers == nullptr) {
    return;
  }
  for (std::size_t index = 0; index < ranks_.size(); ++index) {
    if (!std::binary_search(askers->begin(), askers->end(), ranks_[index])) {
      entry.has_asked[index] = true;
      entry.missing -= has_joined_[index] ? 0 : 1;
    }
  }
}

// Records that this rank has joined, so nothing waits for it any more. Tensors that become ready by that do so in the
// order of their names, because all ranks need some fixed order.
void Negotiator::join(std::size_t index) {
  has_joined_[index] = true;
  ++joined_count_;
  std::vector<std::string> completed;
  for (auto& [name, entry] : entries_) {
    if (!entry.has_asked[index] && --entry.missing == 0) {
      completed.push_back(name);
    }
  }
  std::sort(completed.begin(), completed.end());
  for (const std::string& name : completed) {
    complete(name);
  }
}

void Negotiator::note_join(int rank) {
  if (const int index = index_of(rank); index >= 0) {
    join(static_cast<std::size_t>(index));
  }
}

bool Negotiator::has_joined(int rank) const {
  const int index = index_of(rank);
  return index >= 0 && has_joined_[static_cast<std::size_t>(index)];
}

void Negotiator::forget_joins() {
  has_joined_.assign(has_joined_.size(), false);
  joined_count_ = 0;
}

void Negotiator::complete(const std::string& name) {
  auto node = entries_.extract(name);
  fresh_incomplete_ -= node.mapped().generation == generation_ ? 1U : 0U;
  ready_.push_back(settle(std::move(node.mapped())));
}

// A scalar has no dimension 0 and is refused later in settle(); so is a group whose number of tensors differs from the
// first one's.
void Negotiator::note_first_dims(Entry& entry, std::size_t index, const Request& request) const {
  if (request.kind != OpKind::kAllgather) {
    return;
  }
  const auto size = static_cast<std::size_t>(size_);
  entry.first_dims.resize((entry.first.group.size() + 1) * size);
  const auto note = [&](std::size_t tensor, const std::vector<std::int64_t>& shape) {
    if (tensor <= entry.first.group.size() && !shape.empty()) {
      entry.first_dims[tensor * size + index] = shape.front();
    }
  };
  note(0, request.shape);
  for (std::size_t i = 0; i < request.group.size(); ++i) {
    note(i + 1, request.group[i].shape);
  }
}

Ready Negotiator::settle(Entry entry) const {
  const auto request_of = [&entry](int index) -> const Request& {
    const auto it = std::find_if(entry.different.begin(), entry.different.end(),
                                 [index](const auto& other) { return other.first == index; });
    return it == entry.different.end() ? entry.first : it->second;
  };
  const auto& asked = entry.has_asked;
  const auto rank_at = [this](auto index) { return ranks_[static_cast<std::size_t>(index)]; };
  const int first = static_cast<int>(std::find(asked.begin(), asked.end(), true) - asked.begin());
  Ready ready;
  ready.request = request_of(first);
  ready.request.priority = entry.priority;
  for (int index = first + 1; index < size_ && !entry.different.empty(); ++index) {
    if (asked[static_cast<std::size_t>(index)]) {
      ready.error = disagreement(rank_at(first), ready.request, rank_at(index), request_of(index));
    }
    if (!ready.error.empty()) {
      ready.error_code = static_cast<std::int32_t>(Code::kMismatch);
      return ready;
    }
  }
  const auto missed = std::find(asked.begin(), asked.end(), false);
  ready.is_missed = missed != asked.end();
  if (ready.is_missed && ready.request.kind != OpKind::kAllreduce && ready.request.kind != OpKind::kBarrier) {
    ready.error_code = static_cast<std::int32_t>(Code::kMismatch);
    ready.error = join_refusal(ready.request, rank_at(missed - asked.begin()));
    return ready;
  }
  ready.is_shared = entry.is_shared && !ready.is_missed;
  const Request& agreed = ready.request;
  ready.error = refusal(agreed.kind, rank_at(first), agreed.name, agreed.shape);
  for (const GroupTensor& tensor : agreed.group) {
    ready.error =
        ready.error.empty() ? refusal(agreed.kind, rank_at(first), tensor.name, tensor.shape) : std::move(ready.error);
  }
  if (!ready.error.empty()) {
    ready.error_code = static_cast<std::int32_t>(Code::kMismatch);
  } else if (agreed.kind == OpKind::kBroadcast && index_of(agreed.root_rank) < 0) {
    ready.error_code = static_cast<std::int32_t>(Code::kInvalid);
    ready.error = "BROADCAST from root rank " + std::to_string(agreed.root_rank) + ", but the ranks are " +
                  ranks_text(ranks_) + " (tensor '" + agreed.name + "')";
  } else if (agreed.kind == OpKind::kAllgather) {
    ready.first_dims = std::move(entry.first_dims);
  }
  return ready;
}

std::vector<Unfinished> Negotiator::unfinished() const {
  std::vector<Unfinished> all;
  for (const auto& [name, entry] : entries_) {
    Unfinished one{entry.serial, entry.first.kind, name, {}};
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      if (!entry.has_asked[i] && !has_joined_[i]) {
        one.missing.push_back(ranks_[i]);
      }
    }
    all.push_back(std::move(one));
  }
  std::sort(all.begin(), all.end(), [](const Unfinished& a, const Unfinished& b) { return a.serial < b.serial; });
  return all;
}

std::vector<Ready> Negotiator::take() {
  ++generation_;
  fresh_incomplete_ = 0;
  return std::exchange(ready_, {});
}

}  // namespace hvd

#include "runtime/controller/negotiator.h"

#include <algorithm>
#include <bit>
#include <cstdio>

#include "runtime/core/shape.h"

namespace hvd {
namespace {

bool is_same(double a, double b) {
  return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
}

std::string number_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.17g", value);
  return text;
}

std::string rank_text(int rank) {
  return "rank " + std::to_string(rank);
}

// "<heading>: rank 0 <verb> <a>, but rank 1 <verb> <b> (tensor 'x')"
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
  return "prescale " + number_text(request.prescale) + " and postscale " + number_text(request.postscale);
}

// Extents of an allgather's dimension 0 may differ; everything else, and those of other kinds, may not.
bool shapes_agree(const Request& a, const Request& b) {
  if (a.kind != OpKind::kAllgather || a.shape.empty() || b.shape.empty()) {
    return a.shape == b.shape;
  }
  return std::equal(a.shape.begin() + 1, a.shape.end(), b.shape.begin() + 1, b.shape.end());
}

}  // namespace

std::string disagreement(int rank_a, const Request& a, int rank_b, const Request& b) {
  const Pair pair{rank_a, rank_b, a.name};
  const std::string kind = name_of(a.kind);
  if (a.kind != b.kind) {
    return pair.text("Mismatched operations", "did", kind, name_of(b.kind));
  }
  if (a.dtype != b.dtype) {
    return pair.text("Mismatched data types", "had type", name_of(a.dtype), name_of(b.dtype));
  }
  if (a.op != b.op) {
    return pair.text("Mismatched reduction operation", "sent reduction op", name_of(a.op), name_of(b.op));
  }
  if (!is_same(a.prescale, b.prescale) || !is_same(a.postscale, b.postscale)) {
    return pair.text("Mismatched prescale and/or postscale factors", "sent", scales_text(a), scales_text(b));
  }
  if (!shapes_agree(a, b)) {
    const bool is_allgather = a.kind == OpKind::kAllgather;
    return pair.text("Mismatched " + kind + " tensor shapes", "sent a tensor of shape", shape_text(a.shape),
                     shape_text(b.shape)) +
           (is_allgather ? "; only their first dimension may differ" : "");
  }
  if (a.root_rank != b.root_rank) {
    return pair.text("Mismatched " + kind + " root ranks", "specified root rank", std::to_string(a.root_rank),
                     std::to_string(b.root_rank));
  }
  return {};
}

Negotiator::Negotiator(int size) : size_(size) {
  HVD_CHECK(size > 0);
}

Result<void> Negotiator::add(int rank, Request request) {
  HVD_CHECK(rank >= 0 && rank < size_);
  const auto at = static_cast<std::size_t>(rank);
  const auto [it, is_new] = entries_.try_emplace(request.name);
  Entry& entry = it->second;
  if (is_new) {
    entry.first = request;
    entry.has_asked.assign(static_cast<std::size_t>(size_), false);
    entry.missing = size_;
    entry.generation = generation_;
    ++fresh_incomplete_;
  } else if (entry.has_asked[at]) {
    return Error(Code::kProtocol, rank_text(rank) + " asked twice for tensor '" + request.name + "'");
  }
  entry.has_asked[at] = true;
  if (request.kind == OpKind::kAllgather && !request.shape.empty()) {
    entry.first_dims.resize(static_cast<std::size_t>(size_));
    entry.first_dims[at] = request.shape.front();
  }
  if (!is_new && !disagreement(0, entry.first, rank, request).empty()) {
    entry.different.emplace_back(rank, std::move(request));
  }
  if (--entry.missing == 0) {
    fresh_incomplete_ -= entry.generation == generation_ ? 1 : 0;
    ready_.push_back(settle(std::move(entry)));
    entries_.erase(it);
  }
  return {};
}

Ready Negotiator::settle(Entry entry) const {
  const auto request_of = [&entry](int rank) -> const Request& {
    const auto it = std::find_if(entry.different.begin(), entry.different.end(),
                                 [rank](const auto& other) { return other.first == rank; });
    return it == entry.different.end() ? entry.first : it->second;
  };
  Ready ready;
  ready.request = request_of(0);
  for (int rank = 1; rank < size_ && !entry.different.empty(); ++rank) {
    ready.error = disagreement(0, ready.request, rank, request_of(rank));
    if (!ready.error.empty()) {
      ready.error_code = static_cast<std::int32_t>(Code::kMismatch);
      return ready;
    }
  }
  const Request& agreed = ready.request;
  if (agreed.kind == OpKind::kAllgather && agreed.shape.empty()) {
    ready.error_code = static_cast<std::int32_t>(Code::kInvalid);
    ready.error = "ALLGATHER of a scalar: " + rank_text(0) + " sent a tensor of shape [] (tensor '" + agreed.name +
                  "'); it needs at least one dimension";
  } else if (agreed.kind == OpKind::kBroadcast && (agreed.root_rank < 0 || agreed.root_rank >= size_)) {
    ready.error_code = static_cast<std::int32_t>(Code::kInvalid);
    ready.error = "BROADCAST from root rank " + std::to_string(agreed.root_rank) + ", but the ranks are 0 to " +
                  std::to_string(size_ - 1) + " (tensor '" + agreed.name + "')";
  } else if (agreed.kind == OpKind::kAllgather) {
    ready.first_dims = std::move(entry.first_dims);
  }
  return ready;
}

std::vector<Ready> Negotiator::take() {
  ++generation_;
  fresh_incomplete_ = 0;
  return std::exchange(ready_, {});
}

}  // namespace hvd

#include "launcher/logs/line_gather.h"

namespace hvd::launch {

LineGather::LineGather(int size, Duration window, std::size_t most_bytes, Emit emit)
    : window_(window), most_bytes_(most_bytes), emit_(std::move(emit)), ranks_(static_cast<std::size_t>(size)) {
  may_join_ = {ranks_.size(), ranks_.size()};
}

void LineGather::add_rank() {
  ranks_.emplace_back();
  ++may_join_[0];
  ++may_join_[1];
}

void LineGather::count(const Rank& rank, int step) {
  for (const bool is_error : {false, true}) {
    if (may_join(rank, is_error)) {
      may_join_[is_error ? 1 : 0] += static_cast<std::size_t>(step);
    }
  }
}

void LineGather::add(int rank, bool is_error, std::string_view line, TimePoint now) {
  Rank& from = ranks_[static_cast<std::size_t>(rank)];
  count(from, -1);
  from.queue.push_back({is_error, std::string(line), now + window_, next_number_++});
  count(from, 1);
  held_bytes_ += line.size() + kLineCost;
  if (from.queue.size() == 1) {
    put_head(rank);
  }
  settle();
}

void LineGather::end(int rank, bool is_error) {
  Rank& from = ranks_[static_cast<std::size_t>(rank)];
  count(from, -1);
  from.has_ended[is_error ? 1 : 0] = true;
  count(from, 1);
  settle();
}

void LineGather::put_head(int rank) {
  const auto& queue = ranks_[static_cast<std::size_t>(rank)].queue;
  if (!queue.empty()) {
    groups_[key_of(queue.front())].insert(rank);
    heads_.insert({queue.front().due, queue.front().number, rank});
  }
}

void LineGather::release(int rank) {
  const Held first = ranks_[static_cast<std::size_t>(rank)].queue.front();
  const auto group = groups_.extract(key_of(first));
  const std::vector<int> ranks(group.mapped().begin(), group.mapped().end());
  emit_(ranks, first.is_error, first.line);
  for (const int member : ranks) {
    Rank& from = ranks_[static_cast<std::size_t>(member)];
    const Held& head = from.queue.front();
    heads_.erase({head.due, head.number, member});
    held_bytes_ -= head.line.size() + kLineCost;
    count(from, -1);
    from.queue.pop_front();
    count(from, 1);
    put_head(member);
  }
}

// Every rank that holds a line could join, so a complete group has all heads. It is enough to look at one of them.
std::optional<int> LineGather::find_complete() const {
  if (heads_.empty()) {
    return std::nullopt;
  }
  const int rank = heads_.begin()->rank;
  const Held& held = ranks_[static_cast<std::size_t>(rank)].queue.front();
  const bool is_complete = groups_.at(key_of(held)).size() == may_join_[held.is_error ? 1 : 0];
  return is_complete ? std::optional(rank) : std::nullopt;
}

void LineGather::settle() {
  for (;;) {
    if (const auto rank = find_complete()) {
      release(*rank);
    } else if (held_bytes_ > most_bytes_) {
      release(heads_.begin()->rank);
    } else {
      return;
    }
  }
}

void LineGather::release_due(TimePoint now) {
  while (!heads_.empty() && heads_.begin()->due <= now) {
    release(heads_.begin()->rank);
    settle();
  }
}

void LineGather::release_all() {
  while (!heads_.empty()) {
    release(heads_.begin()->rank);
  }
}

std::optional<TimePoint> LineGather::when() const {
  return heads_.empty() ? std::nullopt : std::optional(heads_.begin()->due);
}

}  // namespace hvd::launch

#include "launcher/state/failure_order.h"

#include <algorithm>

namespace hvd::launch {

FailureOrder::FailureOrder(int size, Duration patience) : patience_(patience), ranks_(static_cast<std::size_t>(size)) {}

void FailureOrder::note_start(int rank) {
  at(rank) = Record();
}

void FailureOrder::note_joined(int rank) {
  Record& record = at(rank);
  if (record.by >= 0 && record.by < static_cast<int>(ranks_.size())) {
    at(record.by).named.reset();  // what this rank said of it was of that job, too
  }
  record.is_follower = false;
  record.by = -1;
  record.named.reset();
  record.noticed.reset();
}

void FailureOrder::note_sign(int rank, TimePoint when) {
  at(rank).sign = mark(when);
  at(rank).has_lost_a_peer = false;
}

void FailureOrder::note_loss(int rank) {
  at(rank).has_lost_a_peer = true;
}

void FailureOrder::note_news(int rank, const FailureNews& news, TimePoint when) {
  Record& record = at(rank);
  if (news.kind == FailureNews::Kind::kNoticed) {
    record.sign = mark(when);
    if (!record.news) {
      record.noticed = record.sign;
      record.told = news;
    }
    return;
  }
  if (news.kind != FailureNews::Kind::kEnds) {
    record.is_follower = true;
    record.by = record.by < 0 && news.by != rank ? news.by : record.by;
    const bool names_another = news.by >= 0 && news.by != rank && news.by < static_cast<int>(ranks_.size());
    if (names_another && !at(news.by).named) {
      at(news.by).named = mark(when);
    }
  }
  if (news.kind != FailureNews::Kind::kOver && !record.news) {
    record.news = mark(when);
    record.told = news;
  }
}

void FailureOrder::note_end(int rank, bool has_failed, TimePoint when) {
  at(rank).end = mark(when);
  at(rank).has_failed = has_failed;
}

void FailureOrder::note_lost(int rank) {
  at(rank) = Record();
  note_end(rank, false, {});
}

const FailureNews* FailureOrder::told(int rank) const {
  return at(rank).news || at(rank).has_left_failing(patience_) ? &at(rank).told : nullptr;
}

bool FailureOrder::follows(int rank) const {
  const Record& record = at(rank);
  // Words of a loss that a program printed and lived with, such as those of a retry, say nothing of its end.
  const TimePoint until = record.has_ended() ? record.end->at : latest_;
  const bool is_recent = record.sign && until - record.sign->at <= patience_;
  return record.is_follower || (record.has_lost_a_peer && is_recent && !record.news && !record.named);
}

std::uint64_t FailureOrder::number_of(const Record& failed) const {
  if (failed.news) {
    return failed.news->number;
  }
  if (!failed.has_ended()) {
    return failed.named->number;
  }
  const bool has_sign = failed.sign && failed.end->at - failed.sign->at <= patience_;
  const std::uint64_t own = has_sign ? failed.sign->number : failed.end->number;
  return failed.named ? std::min(own, failed.named->number) : own;
}

int FailureOrder::earliest(bool are_followers) const {
  int first = -1;
  for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) {
    const bool is_one = is_failure(at(rank)) && follows(rank) == are_followers;
    if (is_one && (first < 0 || number_of(at(rank)) < number_of(at(first)))) {
      first = rank;
    }
  }
  return first;
}

bool FailureOrder::may_be_before(const Record& rank, const Record& failed) const {
  if (rank.has_ended() || is_failure(rank) || rank.is_follower) {
    return false;
  }
  if (rank.named && rank.named->number < number_of(failed)) {
    return true;
  }
  return rank.sign && !rank.has_lost_a_peer && rank.sign->number < number_of(failed) &&
         failed.end->at - rank.sign->at <= patience_;
}

bool FailureOrder::is_suspect(int rank) const {
  return !at(rank).has_ended() && !is_failure(at(rank)) && !follows(rank);
}

bool FailureOrder::is_leader_unknown() const {
  bool is_any_suspect = false;
  for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) {
    is_any_suspect = is_any_suspect || is_suspect(rank);
  }
  for (int rank = 0; rank < static_cast<int>(ranks_.size()) && is_any_suspect; ++rank) {
    if (follows(rank) && (at(rank).by < 0 || is_suspect(at(rank).by))) {
      return true;
    }
  }
  return false;
}

FailureOrder::Finding FailureOrder::first(bool is_late) const {
  if (const int own = earliest(false); own >= 0) {
    // A rank's own report is certain. Its mere end may be the consequence of another rank's failure, of which so far
    // only a printed sign has come.
    const bool is_certain = is_late || told(own) != nullptr;
    const bool must_wait = !is_certain && std::any_of(ranks_.begin(), ranks_.end(),
                                                      [&](const Record& rank) { return may_be_before(rank, at(own)); });
    return must_wait ? Finding{-1, true} : Finding{own, false};
  }
  const int follower = earliest(true);
  if (follower >= 0 && !is_late && is_leader_unknown()) {
    return {-1, true};
  }
  return {follower, false};
}

}  // namespace hvd::launch

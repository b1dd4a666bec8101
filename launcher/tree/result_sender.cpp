#include "launcher/tree/result_sender.h"

#include <algorithm>
#include <utility>

namespace hvd::launch {
namespace {

// So many entries take some milliseconds.
constexpr std::size_t kWalkedPerTurn = 1000;
constexpr std::size_t kListEntries = 1000;

}  // namespace

void ResultSender::begin(const TreeIndex& brought, const std::vector<std::string>& patterns) {
  std::string text;
  for (const std::string& pattern : patterns) {
    text += pattern + "\n";
  }
  walk_.emplace(root_, brought, IgnoreRules(text));
  go_on_soon();
}

void ResultSender::on_credit(const ResultCredit& credit) {
  if (credit.ends == ResultCredit::kNothing) {
    loop_.cancel(std::exchange(timer_, 0));
    sink_.on_over();
    return;
  }
  credit_ += static_cast<std::int64_t>(std::min(credit.bytes, kTreeWindow));
  if (credit.ends) {
    end_file(*credit.ends);
  }
  go_on_soon();
}

void ResultSender::end_file(std::uint64_t files_before) {
  if (files_before != files_before_ + place_.file || place_.file >= files_.size()) {
    return;  // all of it was sent when this was said
  }
  FilePiece end;
  end.is_end = true;
  send_piece(FileBytes{{end}}.encode(), {place_.file + 1, 0});
}

void ResultSender::go_on_soon() {
  if (timer_ == 0) {
    timer_ = loop_.after(Duration::zero(), [this] {
      timer_ = 0;
      go_on();
    });
  }
}

void ResultSender::go_on() {
  if (credit_ <= 0) {
    return;
  }
  if (place_.file < files_.size()) {
    send_bytes();
    return;
  }
  walk_->look_on(kWalkedPerTurn);
  if (walk_->is_over() && walk_->found() == 0) {
    sink_.on_over();
    return;
  }
  if (walk_->is_over() || walk_->found() >= kListEntries) {
    send_list();
  }
  go_on_soon();
}

void ResultSender::send_list() {
  entries_ = walk_->take();
  files_before_ += files_.size();
  files_.clear();
  place_ = {};
  for (std::uint32_t index = 0; index < entries_.size(); ++index) {
    if (entries_[index].kind == TreeEntry::Kind::kFile) {
      files_.push_back(index);
    }
  }
  const std::string body = TreeList{true, entries_}.encode();
  credit_ -= static_cast<std::int64_t>(body.size());
  sink_.send(AgentMessage::kResultList, body);
}

void ResultSender::send_bytes() {
  const auto portion = read_portion(root_, entries_, files_, place_, files_.size(), true);
  if (!portion.ok()) {
    sink_.on_problem(portion.error().message() + "; the files after it stay there");
    sink_.on_over();
    return;
  }
  send_piece(portion.value().body, portion.value().next);
}

void ResultSender::send_piece(const std::string& body, const FilePlace& next) {
  credit_ -= static_cast<std::int64_t>(body.size());
  place_ = next;
  sink_.send(AgentMessage::kResultBytes, body);
  go_on_soon();
}

}  // namespace hvd::launch

#include "launcher/tree/tree_senders.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "runtime/base/text.h"

namespace hvd::launch {

TreeSenders::TreeSenders(EventLoop& loop, Tree tree, Sink sink)
    : loop_(loop), tree_(std::move(tree)), sink_(std::move(sink)), contents_(tree_) {}

TreeSenders::~TreeSenders() {
  loop_.cancel(timer_);
}

void TreeSenders::offer(int node) {
  nodes_[node] = {};
  const TreeOffer offer{tree_.name, tree_.digest, tree_.key};
  sink_.send(node, AgentMessage::kOfferTree,
             std::make_shared<const std::string>(agent_frame(AgentMessage::kOfferTree, offer.encode())));
}

Result<void> TreeSenders::on_message(int node, AgentMessage type, std::string_view body) {
  const auto found = nodes_.find(node);
  if (found == nodes_.end()) {
    return Error(Code::kProtocol, "its agent speaks of a folder that was not offered");
  }
  Node& to = found->second;
  switch (type) {
    case AgentMessage::kAskTree:
      if (to.list_left > 0 || to.has_asked) {
        return Error(Code::kProtocol, "its agent asks twice for the list of files");
      }
      to.is_waiting = false;
      to.list_left = contents_.list_parts();
      send_soon();
      return {};
    case AgentMessage::kWantFiles:
      return on_wanted(node, to, body);
    case AgentMessage::kFileCredit: {
      HVD_TRY_ASSIGN(const FileCredit credit, FileCredit::decode(body));
      if (credit.is_waiting) {
        to.is_waiting = true;
        ++activity_;
        if (!credit.why.empty() && waits_.size() < nodes_.size() && waits_.insert(credit.why).second) {
          sink_.on_waiting(node, credit.why);
        }
        return {};
      }
      to.is_waiting = false;
      if (to.source >= 0) {  // another node gives it files, and it tells how far they are
        to.sent_bytes += credit.bytes;
        activity_ += credit.bytes;
        return {};
      }
      to.credit += static_cast<std::int64_t>(std::min(credit.bytes, kTreeWindow));
      send_soon();
      return {};
    }
    case AgentMessage::kTreeHere:
      return on_here(node, to, body);
    default:
      return Error(Code::kProtocol, "its agent says of a folder what the launcher says");
  }
}

Result<void> TreeSenders::on_wanted(int node, Node& to, std::string_view body) {
  const bool is_fallback = to.source >= 0;
  if (to.has_asked && !is_fallback) {
    return Error(Code::kProtocol, "its agent asks twice for files");
  }
  HVD_TRY_ASSIGN(WantedFiles message, WantedFiles::decode(body));
  HVD_TRY_ASSIGN(to.wanted, contents_.wanted(std::move(message.indices)));
  if (is_fallback) {
    sink_.on_fallback(node, to.source, message.why);
    // It is not known which of the two is to blame, so nobody else is sent there.
    if (const auto source = nodes_.find(std::exchange(to.source, -1)); source != nodes_.end()) {
      source->second.port = 0;
    }
    send_soon();
    return {};
  }
  to.has_asked = true;
  for (const std::uint32_t index : *to.wanted) {
    to.wanted_bytes += tree_.entries[index].size;
  }
  const int source = message.port > 0 ? source_for(node) : -1;
  to.port = is_sharing_ ? message.port : 0;
  if (source < 0) {
    send_soon();
    return {};
  }
  FetchFiles fetch;
  for (const std::string& address : sink_.addresses_of(source)) {
    const bool is_ipv6 = address.find(':') != std::string::npos;
    if (!is_ipv6) {  // agents give files over IPv4 only
      fetch.addresses.push_back(address + ":" + std::to_string(nodes_.at(source).port));
    }
  }
  to.source = source;
  ++nodes_.at(source).receivers;
  sink_.send(node, AgentMessage::kFetchFiles,
             std::make_shared<const std::string>(agent_frame(AgentMessage::kFetchFiles, fetch.encode())));
  return {};
}

int TreeSenders::source_for(int node) const {
  constexpr int kDirect = 2;     // nodes that get files from here, before any is sent to another one
  constexpr int kReceivers = 2;  // of one node
  int direct = 0;
  int best = -1;
  for (const auto& [other, state] : nodes_) {
    if (other == node || !state.has_asked) {
      continue;
    }
    direct += state.source < 0 ? 1 : 0;
    const bool is_free = state.port > 0 && state.receivers < kReceivers;
    if (is_free && (best < 0 || state.receivers < nodes_.at(best).receivers)) {
      best = other;
    }
  }
  return is_sharing_ && direct >= kDirect ? best : -1;
}

void TreeSenders::stop_sharing() {
  is_sharing_ = false;
  for (auto& [node, state] : nodes_) {
    state.port = 0;
  }
}

Result<void> TreeSenders::on_here(int node, Node& to, std::string_view body) {
  HVD_TRY_ASSIGN(TreeHere here, TreeHere::decode(body));
  to.wanted = nullptr;
  if (!here.error.empty()) {
    sink_.on_failed(node, Error(Code::kResource, here.error));
    return {};
  }
  if (!here.changed.empty()) {
    const std::string path = tree_.root + "/" + here.changed;
    if (!is_sharing_) {  // ranks run already, by what the file was
      const std::string what =
          here.others == 0
              ? path + " has changed since the job began, so that this host would have another one than the others"
              : path + " and " + counted(here.others, "other file") +
                    " have changed since the job began, so that this host would have other ones than the others";
      sink_.on_failed(node, Error(Code::kResource, "--sync: " + what));
      return {};
    }
    if (changed_.insert(here.changed).second) {
      sink_.on_changed(node, path, here.others);
    }
  }
  to.path = std::move(here.path);
  totals_.nodes += here.files > 0 || here.removed > 0 ? 1 : 0;
  totals_.files += here.files;
  totals_.bytes += here.bytes;
  totals_.removed += here.removed;
  sink_.on_here(node);
  return {};
}

void TreeSenders::forget(int node) {
  nodes_.erase(node);
}

const std::string& TreeSenders::path_on(int node) const {
  static const std::string kNone;
  const auto found = nodes_.find(node);
  return found == nodes_.end() ? kNone : found->second.path;
}

std::string TreeSenders::progress_of(int node) const {
  const auto found = nodes_.find(node);
  if (found == nodes_.end() || found->second.wanted == nullptr) {
    return found != nodes_.end() && found->second.is_waiting && found->second.path.empty()
               ? "waiting for another job, which copies the same folder there"
               : "";
  }
  constexpr std::uint64_t kMegabyte = 1'000'000;
  return "copying files: " + std::to_string(found->second.sent_bytes / kMegabyte) + " of " +
         std::to_string((found->second.wanted_bytes + kMegabyte - 1) / kMegabyte) + " MB";
}

void TreeSenders::send_soon() {
  if (timer_ == 0) {
    timer_ = loop_.after(Duration::zero(), [this] {
      timer_ = 0;
      send_more();
    });
  }
}

void TreeSenders::send_more() {
  bool is_more = false;
  std::vector<std::pair<int, Error>> failed;
  for (auto& [node, to] : nodes_) {
    const auto sent = send_next(node, to);
    if (!sent.ok()) {
      to.wanted = nullptr;
      failed.emplace_back(node, sent.error());
    }
    is_more = is_more || (sent.ok() && sent.value());
  }
  for (const auto& [node, why] : failed) {
    sink_.on_failed(node, why);
  }
  if (is_more) {
    send_soon();
  }
}

Result<bool> TreeSenders::send_next(int node, Node& to) {
  const bool wants_files = to.wanted != nullptr && to.source < 0 && to.place.file < to.wanted->size();
  if (to.credit <= 0 || (to.list_left == 0 && !wants_files)) {
    return false;
  }
  TreeContents::Portion portion;
  if (to.list_left > 0) {
    portion = contents_.list(contents_.list_parts() - to.list_left);
    --to.list_left;
    sink_.send(node, AgentMessage::kTreeList, portion.frame);
  } else {
    HVD_TRY_ASSIGN(portion, contents_.read(to.wanted, to.place));
    to.place = portion.next;
    to.sent_bytes += portion.body_bytes;
    sink_.send(node, AgentMessage::kFileBytes, portion.frame);
  }
  to.credit -= static_cast<std::int64_t>(portion.body_bytes);
  activity_ += portion.body_bytes;
  return to.list_left > 0 || (to.wanted != nullptr && to.place.file < to.wanted->size());
}

}  // namespace hvd::launch

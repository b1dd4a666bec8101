#include "launcher/tree/tree_receiver.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <span>
#include <utility>

#include "launcher/process/own_process.h"
#include "runtime/base/text.h"
#include "runtime/rendezvous/sha256.h"

namespace hvd::launch {
namespace {

// Another agent of this node, or of this home, is writing the same folder.
constexpr auto kLockPause = std::chrono::milliseconds(20);
// The launcher is told so often that this agent still waits for that, once for whom, and at the end why no longer.
constexpr int kPausesUntold = 50;
constexpr int kPausesUnnamed = 500;  // ten seconds
constexpr int kMostPauses = 30'000;  // ten minutes
constexpr std::size_t kCheckedPerTurn = 2000;
// For less it is not worth to listen.
constexpr std::uint64_t kWorthSharing = 1U << 20U;
// The launcher is told of progress so often.
constexpr std::uint64_t kTellBytes = 4U << 20U;

// "pid 17 on node1 (job 1f2e3d4c)"
std::string name_of_this_agent(const std::string& job) {
  return "pid " + std::to_string(::getpid()) + " on " + own_host_name() + " (job " + job + ")";
}

}  // namespace

TreeReceiver::~TreeReceiver() {
  loop_.cancel(timer_);
  if (writer_ != nullptr && folder_) {
    static_cast<void>(folder_->share(written()));
  }
}

Result<void> TreeReceiver::on_message(AgentMessage type, std::string_view body) {
  if (!here_.error.empty()) {
    return {};  // the launcher does not know yet that it has failed
  }
  switch (type) {
    case AgentMessage::kOfferTree:
      return on_offer(body);
    case AgentMessage::kTreeList:
      return on_list(body);
    case AgentMessage::kFileBytes:
      return on_bytes(body);
    case AgentMessage::kFetchFiles:
      return on_fetch(body);
    default:
      return Error(Code::kProtocol, "an agent's own words about a folder");
  }
}

Result<void> TreeReceiver::on_offer(std::string_view body) {
  if (!offer_.name.empty()) {
    return Error(Code::kProtocol, "a second folder was offered");
  }
  HVD_TRY_ASSIGN(offer_, TreeOffer::decode(body));
  Sha256 own;
  own.add(Bytes(offer_.digest));
  own.add(Bytes(job_.secret));
  own_digest_ = own.finish();
  take(1);
  return {};
}

void TreeReceiver::take(int number) {
  const auto place = tree_place(environment_);
  if (!place.ok()) {
    fail(place.error());
    return;
  }
  auto taken =
      TreeFolder::take({place.value(), offer_.name, {offer_.digest, own_digest_}, name_of_this_agent(job_.id), number});
  if (!taken.ok()) {
    fail(taken.error());
    return;
  }
  if (!taken.value().folder) {
    await(taken.value(), number);
    return;
  }
  folder_ = std::move(taken).value().folder;
  checked_ = 0;
  const ContentHash& state = folder_->index().digest;
  if (state == offer_.digest || state == own_digest_) {
    check();
  } else {
    send_(AgentMessage::kAskTree, "");
  }
}

void TreeReceiver::await(const TakenFolder& taken, int number) {
  const std::string holder = taken.holder.empty() ? "another job" : taken.holder;
  if (++pauses_ == kMostPauses) {
    fail(Error(Code::kTimeout, "--sync: " + taken.path + ": " + holder +
                                   " has been copying there for ten minutes; where it runs no more, a host that "
                                   "shares this home has died while it did: remove that folder"));
    return;
  }
  if (pauses_ == kPausesUnnamed) {
    const std::string why = "--sync: waits, for ten minutes at most, until " + holder + " has copied into ";
    send_(AgentMessage::kFileCredit, FileCredit{0, true, why + taken.path}.encode());
  } else if (pauses_ % kPausesUntold == 0) {
    send_(AgentMessage::kFileCredit, FileCredit{0, true}.encode());
  }
  timer_ = loop_.after(kLockPause, [this, number] { take(number); });
}

// The index says that the folder is as offered; whether it still is so, the file system knows.
void TreeReceiver::check() {
  const std::vector<WrittenEntry>& entries = folder_->index().entries;
  const std::size_t end = std::min(entries.size(), checked_ + kCheckedPerTurn);
  for (; checked_ < end; ++checked_) {
    struct stat status{};
    if (::fstatat(folder_->files(), entries[checked_].entry.path.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0 ||
        !entries[checked_].looks_like(status)) {
      break;
    }
  }
  if (checked_ == entries.size()) {
    finish();
  } else if (checked_ == end) {
    go_on_with(&TreeReceiver::check);
  } else if (folder_->may_change()) {
    send_(AgentMessage::kAskTree, "");
  } else {
    take(folder_->number() + 1);  // a rank of another job has changed it, and that job still uses it
  }
}

Result<void> TreeReceiver::on_list(std::string_view body) {
  if (!folder_ || !folder_->may_change() || writer_ != nullptr) {
    return Error(Code::kProtocol, "a list of files that was not asked for");
  }
  HVD_TRY_ASSIGN(TreeList part, TreeList::decode(body));
  if (part.proofs.size() != part.entries.size()) {
    return Error(Code::kProtocol, "a list of files without their proofs");
  }
  std::move(part.entries.begin(), part.entries.end(), std::back_inserter(list_));
  proofs_.insert(proofs_.end(), part.proofs.begin(), part.proofs.end());
  send_(AgentMessage::kFileCredit, FileCredit{body.size()}.encode());
  if (part.is_last) {
    if (const auto announced = folder_->announce(list_); !announced.ok()) {
      fail(announced.error().with_context("--sync"));
      return {};
    }
    auto mac = Gmac::create(offer_.key);
    if (!mac.ok()) {
      fail(mac.error().with_context("--sync"));
      return {};
    }
    writer_ = std::make_unique<TreeWriter>(
        TreeWriter::Place{folder_->files(), folder_->path(), folder_->parts(), tag_of_writer() + ".part"},
        folder_->index(), std::make_shared<const std::vector<TreeEntry>>(std::move(list_)), TreeWriter::Way::kAsListed);
    writer_->check_by(std::move(mac).value(), std::move(proofs_));
    prepare();
  }
  return {};
}

void TreeReceiver::prepare() {
  const auto prepared = writer_->prepare();
  if (!prepared.ok()) {
    fail(prepared.error());
  } else if (!prepared.value()) {
    go_on_with(&TreeReceiver::prepare);
  } else if (writer_->wanted().empty()) {
    finish();
  } else {
    ask_for_files();
  }
}

void TreeReceiver::ask_for_files() {
  here_.files = static_cast<std::uint32_t>(writer_->wanted().size());
  WantedFiles wanted{writer_->wanted()};
  std::uint64_t bytes = 0;
  for (const std::uint32_t index : wanted.indices) {
    bytes += writer_->list()[index].size;
  }
  if (bytes >= kWorthSharing) {
    PeerServer::Source source;
    source.root = folder_->path();
    source.list = writer_->whole_list();
    source.first_missing = [this, end = writer_->list().size()] {
      return writer_ == nullptr ? end : writer_->first_missing();
    };
    if (auto server = PeerServer::listen(loop_, job_.secret, std::move(source)); server.ok()) {
      server_ = std::move(server).value();
      wanted.port = server_->port();
    }
  }
  send_(AgentMessage::kWantFiles, wanted.encode());
}

Result<void> TreeReceiver::on_fetch(std::string_view body) {
  if (writer_ == nullptr || here_.files == 0 || fetch_ != nullptr) {
    return Error(Code::kProtocol, "files to be fetched that were not asked for");
  }
  HVD_TRY_ASSIGN(FetchFiles from, FetchFiles::decode(body));
  PeerFetch::Sink sink;
  sink.on_bytes = [this](std::string_view bytes) {
    untold_ += bytes.size();
    if (untold_ >= kTellBytes) {
      send_(AgentMessage::kFileCredit, FileCredit{std::exchange(untold_, 0)}.encode());
    }
    return take_bytes(bytes);
  };
  sink.on_failed = [this](const Error& why) { on_fetch_failed(why); };
  fetch_ =
      std::make_unique<PeerFetch>(loop_, job_.secret, std::move(from.addresses), writer_->wanted(), std::move(sink));
  return {};
}

// Whatever is wrong with the other node, the launcher has the files too.
void TreeReceiver::on_fetch_failed(const Error& why) {
  fetch_.reset();
  if (writer_ != nullptr && here_.error.empty()) {
    send_(AgentMessage::kWantFiles, WantedFiles{writer_->begin_rest(), 0, why.message()}.encode());
  }
}

Result<void> TreeReceiver::on_bytes(std::string_view body) {
  if (fetch_ != nullptr) {
    return Error(Code::kProtocol, "bytes of a file that is being fetched");
  }
  HVD_TRY(take_bytes(body));
  send_(AgentMessage::kFileCredit, FileCredit{body.size()}.encode());
  return {};
}

Result<void> TreeReceiver::take_bytes(std::string_view body) {
  if (writer_ == nullptr || here_.files == 0) {
    return Error(Code::kProtocol, "bytes of a file that was not asked for");
  }
  if (!here_.error.empty()) {
    return {};
  }
  HVD_TRY_ASSIGN(const FileBytes bytes, FileBytes::decode(body));
  const FilePlace before = writer_->arrived();
  for (const FilePiece& piece : bytes.pieces) {
    if (piece.is_unreadable && !writer_->has_all()) {
      writer_->lose();
      continue;
    }
    here_.bytes += piece.bytes.size();
    if (const auto written = writer_->write(piece); !written.ok()) {
      if (written.error().code() == Code::kProtocol) {
        return written;
      }
      fail(written.error());
      return {};
    }
  }
  if (const FilePlace after = writer_->arrived(); server_ != nullptr && after != before) {
    const std::size_t end = after.file + (after.offset > 0 ? 1 : 0);
    server_->on_arrived(body, std::span(writer_->wanted()).subspan(before.file, end - before.file), before.offset,
                        after.offset);
  }
  if (writer_->has_all()) {
    finish();
  }
  return {};
}

TreeIndex TreeReceiver::written() const {
  return writer_->index(writer_->changed().first.empty() ? offer_.digest : own_digest_);
}

void TreeReceiver::finish() {
  Result<void> shared;
  if (writer_ != nullptr) {
    here_.removed = writer_->removed();
    here_.changed = writer_->changed().first;
    here_.others = writer_->changed().others;
    shared = folder_->share(written());
    writer_.reset();
  } else if (folder_->may_change()) {
    shared = folder_->share();
  }
  if (!shared.ok()) {
    fail(shared.error());
    return;
  }
  timer_ = loop_.after(Duration::zero(), [this] { fetch_.reset(); });  // it may be what has called us
  here_.path = folder_->path();
  send_(AgentMessage::kTreeHere, here_.encode());
}

void TreeReceiver::fail(const Error& why) {
  server_.reset();
  timer_ = loop_.after(Duration::zero(), [this] { fetch_.reset(); });
  here_.error = why.message();
  here_.path.clear();
  // Another agent that waits for the folder's lock gets it at once.
  if (writer_ != nullptr && folder_) {
    static_cast<void>(folder_->share(writer_->index({})));  // the first error is the one that is told
  }
  writer_.reset();
  folder_.reset();
  send_(AgentMessage::kTreeHere, here_.encode());
}

void TreeReceiver::go_on_with(void (TreeReceiver::*step)()) {
  timer_ = loop_.after(Duration::zero(), [this, step] { (this->*step)(); });
}

}  // namespace hvd::launch

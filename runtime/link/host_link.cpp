#include "runtime/link/host_link.h"

#include <errno.h>
#include <sys/socket.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <span>

#include "runtime/base/check.h"

namespace hvd {
namespace {

constexpr std::uint32_t kMagic = 0x51445648U;     // "HVDQ"
constexpr std::uint32_t kEndMagic = 0x45445648U;  // "HVDE"
constexpr std::size_t kAlignment = 64;

struct Mark {
  std::uint32_t magic = kMagic;
  std::uint32_t number = 0;
  std::uint64_t round = 0;
  std::uint32_t kind = 0;
  std::uint32_t head_bytes = 0;
  std::uint32_t data_bytes = 0;
  std::uint32_t reserved = 0;
};

struct EndMark {
  std::uint32_t magic = kEndMagic;
  std::uint32_t number = 0;
  std::uint64_t round = 0;
};

// The offset of the data in a message.
constexpr std::size_t data_at(std::size_t head_bytes) {
  return (sizeof(Mark) + head_bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Room for the longest message; what comes after a shorter one fits too.
constexpr std::size_t kRoom = data_at(HostLink::kMostHead) + HostLink::kMostData + sizeof(EndMark);

Mark mark_at(const std::uint8_t* from) {
  Mark mark;
  std::memcpy(&mark, from, sizeof mark);
  return mark;
}

iovec part_of(const std::uint8_t* data, std::size_t bytes) {
  return iovec{const_cast<std::uint8_t*>(data), bytes};
}

}  // namespace

HostLink::HostLink(Fd fd, std::unique_ptr<SealedStream> sealed, Ends ends)
    : fd_(std::move(fd)),
      sealed_(std::move(sealed)),
      ends_(std::move(ends)),
      in_(std::make_unique_for_overwrite<std::uint8_t[]>(kRoom + kAlignment)) {
  static_assert(sizeof(Mark) == kMarkBytes && sizeof(EndMark) == kEndBytes && data_at(kMostHead) <= kFrontBytes);
  in_at_ = in_.get() + (kAlignment - std::bit_cast<std::uintptr_t>(in_.get()) % kAlignment) % kAlignment;
}

std::size_t HostLink::length_of(std::size_t head_bytes, std::size_t data_bytes) {
  return data_at(head_bytes) + data_bytes + sizeof(EndMark);
}

Error HostLink::lost(const std::string& why) const {
  return {Code::kLostPeer, "lost the connection to " + ends_.there + ": " + why};
}

Error HostLink::out_of_step(const std::string& what) const {
  return {Code::kProtocol, "the connection from " + ends_.there + " to " + ends_.here + " is out of step: message " +
                               std::to_string(received_count_) + " was to come, and " + what +
                               "; something else has written into it"};
}

// Sending.

void HostLink::begin(Kind kind, std::uint64_t round, Bytes head, Bytes data) {
  HVD_CHECK(front_bytes_ == 0 && head.size() <= kMostHead && data.size() <= kMostData);
  Mark mark;
  mark.number = posted_count_;
  mark.round = round;
  mark.kind = static_cast<std::uint32_t>(kind);
  mark.head_bytes = static_cast<std::uint32_t>(head.size());
  mark.data_bytes = static_cast<std::uint32_t>(data.size());
  const EndMark end{kEndMagic, posted_count_, round};
  ++posted_count_;
  front_bytes_ = data_at(head.size());
  std::memcpy(front_.data(), &mark, sizeof mark);
  if (!head.empty()) {
    std::memcpy(front_.data() + sizeof mark, head.data(), head.size());
  }
  const std::size_t filled = sizeof mark + head.size();
  std::memset(front_.data() + filled, 0, front_bytes_ - filled);
  data_ = data;
  std::memcpy(end_.data(), &end, sizeof end);
  sent_ = 0;
}

void HostLink::post(std::uint64_t round, Bytes head, Bytes data) {
  HVD_CHECK(kept_.empty() && !declined_);
  begin(Kind::kPost, round, head, data);
}

void HostLink::decline(std::uint64_t round) {
  declined_ = std::max(round, declined_.value_or(0));
}

// Writes where the bytes are that were begun, and are not sent.
std::size_t HostLink::unsent_parts(Parts& parts) const {
  std::size_t count = 0;
  if (!kept_.empty()) {
    parts[count++] = part_of(kept_.data() + kept_sent_, kept_.size() - kept_sent_);
  }
  std::size_t skipped = sent_;
  for (const Bytes& part : {Bytes(front_.data(), front_bytes_), data_, Bytes(end_)}) {
    const std::size_t skip = std::min(skipped, part.size());
    skipped -= skip;
    if (front_bytes_ != 0 && part.size() != skip) {
      parts[count++] = part_of(part.data() + skip, part.size() - skip);
    }
  }
  return count;
}

void HostLink::note_sent(std::size_t bytes) {
  const std::size_t of_kept = std::min(bytes, kept_.size() - kept_sent_);
  kept_sent_ += of_kept;
  if (kept_sent_ == kept_.size()) {
    kept_.clear();
    kept_sent_ = 0;
  }
  sent_ += bytes - of_kept;
  if (front_bytes_ != 0 && sent_ == front_bytes_ + data_.size() + end_.size()) {
    front_bytes_ = 0;
    data_ = {};
    sent_ = 0;
  }
}

// Returns how many bytes the system has taken: 0 if it takes no more now.
Result<std::size_t> HostLink::send_parts() {
  Parts parts;  // NOLINT(cppcoreguidelines-pro-type-member-init): filled below
  msghdr message{};
  message.msg_iovlen = unsent_parts(parts);
  message.msg_iov = parts.data();
  const ssize_t sent = ::sendmsg(fd_.get(), &message, MSG_NOSIGNAL);
  if (sent < 0) {
    return errno == EAGAIN || errno == EINTR ? Result<std::size_t>(0) : lost(Error::from_errno("send").message());
  }
  note_sent(static_cast<std::size_t>(sent));
  return static_cast<std::size_t>(sent);
}

Result<std::size_t> HostLink::send_sealed() {
  if (sealed_->unsent().empty()) {
    Parts parts;  // NOLINT(cppcoreguidelines-pro-type-member-init): filled below
    const std::size_t count = unsent_parts(parts);
    HVD_TRY_ASSIGN(const std::size_t sealed, sealed_->seal(std::span(parts).first(count)));
    note_sent(sealed);
  }
  const Bytes wire = sealed_->unsent();
  const ssize_t sent = ::send(fd_.get(), wire.data(), wire.size(), MSG_NOSIGNAL);
  if (sent < 0) {
    return errno == EAGAIN || errno == EINTR ? Result<std::size_t>(0) : lost(Error::from_errno("send").message());
  }
  sealed_->note_sent(static_cast<std::size_t>(sent));
  return static_cast<std::size_t>(sent);
}

Result<bool> HostLink::flush() {
  for (;;) {
    const bool has_wire = sealed_ != nullptr && !sealed_->unsent().empty();
    if (kept_.empty() && front_bytes_ == 0 && !has_wire) {
      if (!declined_) {
        return true;
      }
      begin(Kind::kDecline, *declined_, {}, {});
      declined_.reset();
    }
    HVD_TRY_ASSIGN(const std::size_t sent, sealed_ == nullptr ? send_parts() : send_sealed());
    if (sent == 0) {
      return false;
    }
  }
}

void HostLink::keep_rest() {
  if (front_bytes_ == 0) {
    return;
  }
  Parts parts;  // NOLINT(cppcoreguidelines-pro-type-member-init): filled below
  const std::size_t count = unsent_parts(parts);
  std::vector<std::uint8_t> rest;
  for (const iovec& part : std::span(parts).first(count)) {
    const auto* from = static_cast<const std::uint8_t*>(part.iov_base);
    rest.insert(rest.end(), from, from + part.iov_len);
  }
  kept_.swap(rest);
  kept_sent_ = 0;
  front_bytes_ = 0;
  data_ = {};
  sent_ = 0;
}

// Receiving.

Result<std::size_t> HostLink::read_some(std::size_t wanted) {
  const ssize_t got = ::recv(fd_.get(), in_at_ + in_bytes_, wanted, 0);
  if (got == 0) {
    return lost("it was closed at the other end");
  }
  if (got < 0) {
    return errno == EAGAIN || errno == EINTR ? Result<std::size_t>(0) : lost(Error::from_errno("recv").message());
  }
  return static_cast<std::size_t>(got);
}

Result<std::size_t> HostLink::read_sealed(std::size_t wanted) {
  while (sealed_->text().empty()) {
    const auto opened = sealed_->open_next();
    if (!opened.ok()) {
      return Error(Code::kProtocol, "the encrypted connection from " + ends_.there + " to " + ends_.here +
                                        " was changed on its way: " + opened.error().message() +
                                        "; somebody writes into the network between");
    }
    if (opened.value()) {
      break;
    }
    const MutableBytes room = sealed_->room();
    const ssize_t got = ::recv(fd_.get(), room.data(), room.size(), 0);
    if (got == 0) {
      return lost("it was closed at the other end");
    }
    if (got < 0) {
      return errno == EAGAIN || errno == EINTR ? Result<std::size_t>(0) : lost(Error::from_errno("recv").message());
    }
    sealed_->note_received(static_cast<std::size_t>(got));
  }
  const iovec part{in_at_ + in_bytes_, wanted};
  return sealed_->take(std::span(&part, 1));
}

// The length that the mark tells of, once it has come; 0 before that.
Result<std::size_t> HostLink::whole_length() const {
  if (in_bytes_ < kMarkBytes) {
    return 0;
  }
  const Mark mark = mark_at(in_at_);
  if (mark.magic != kMagic) {
    return out_of_step("what came is no message");
  }
  const bool is_post = mark.kind == static_cast<std::uint32_t>(Kind::kPost);
  const bool is_decline = mark.kind == static_cast<std::uint32_t>(Kind::kDecline);
  if (mark.number != received_count_ || !(is_post || is_decline) || mark.head_bytes > kMostHead ||
      mark.data_bytes > kMostData || mark.reserved != 0 || (is_decline && mark.head_bytes + mark.data_bytes != 0)) {
    return out_of_step("message " + std::to_string(mark.number) + " of kind " + std::to_string(mark.kind) + " with " +
                       std::to_string(mark.head_bytes) + " and " + std::to_string(mark.data_bytes) + " bytes has");
  }
  return length_of(mark.head_bytes, mark.data_bytes);
}

Result<std::optional<HostLink::Message>> HostLink::receive(std::size_t expected) {
  if (taken_ != 0) {
    in_bytes_ -= taken_;
    std::memmove(in_at_, in_at_ + taken_, in_bytes_);
    taken_ = 0;
  }
  for (;;) {
    HVD_TRY_ASSIGN(const std::size_t length, whole_length());
    if (length != 0 && in_bytes_ >= length) {
      const Mark mark = mark_at(in_at_);
      const EndMark end{kEndMagic, mark.number, mark.round};
      if (std::memcmp(in_at_ + length - sizeof end, &end, sizeof end) != 0) {
        return out_of_step("its end has not");
      }
      ++received_count_;
      taken_ = length;
      return std::optional<Message>(Message{static_cast<Kind>(mark.kind), mark.round,
                                            Bytes(in_at_ + sizeof mark, mark.head_bytes),
                                            Bytes(in_at_ + data_at(mark.head_bytes), mark.data_bytes)});
    }
    const std::size_t until = length != 0 ? length : std::max(length_of(0, 0), expected);
    const std::size_t wanted = std::min(until, kRoom) - in_bytes_;
    HVD_TRY_ASSIGN(const std::size_t got, sealed_ == nullptr ? read_some(wanted) : read_sealed(wanted));
    if (got == 0) {
      return std::optional<Message>();
    }
    in_bytes_ += got;
  }
}

void HostLink::put_back() {
  taken_ = 0;
  --received_count_;
}

}  // namespace hvd

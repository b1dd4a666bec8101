#include "launcher/ssh/key_agent.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>

#include "launcher/ssh/ssh_wire.h"

namespace hvd::launch {
namespace {

// These numbers are from draft-ietf-sshm-ssh-agent.
constexpr char kListRequest = 11;
constexpr std::uint8_t kListReply = 12;
constexpr char kSignRequest = 13;
constexpr std::uint8_t kSignReply = 14;
constexpr std::uint32_t kSha256 = 2;  // how an RSA key is to sign
constexpr std::uint32_t kSha512 = 4;
constexpr std::size_t kMaxReply = 256 * 1024;  // as OpenSSH's agent has it
constexpr std::size_t kLengthBytes = 4;

Error broken() {
  return Error(Code::kProtocol, "ssh-agent answers with what is no answer");
}

// Returns the algorithm of the signature that this data asks for. The data is a login request (RFC 4252 section 7).
std::string_view algorithm_in(std::string_view data) {
  WireReader in(data);
  in.text();  // session
  in.byte();  // message
  in.text();  // user
  in.text();  // service
  in.text();  // "publickey"
  in.byte();  // TRUE
  return in.text();
}

std::uint32_t flags_for(std::string_view algorithm) {
  if (algorithm == "rsa-sha2-512") {
    return kSha512;
  }
  return algorithm == "rsa-sha2-256" ? kSha256 : 0;
}

}  // namespace

Result<std::unique_ptr<KeyAgent>> KeyAgent::connect(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    return Error(Code::kInvalid, "its path is too long for a socket");
  }
  path.copy(address.sun_path, path.size());
  Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  // EAGAIN means that the agent's queue of connections is full.
  if (!socket.is_open() || ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return Error::from_errno("connecting");
  }
  return std::unique_ptr<KeyAgent>(new KeyAgent(std::move(socket)));
}

std::uint32_t KeyAgent::wanted_events() const {
  return out_.empty() ? EPOLLIN : EPOLLIN | EPOLLOUT;
}

Result<bool> KeyAgent::send_rest() {
  while (!out_.empty()) {
    const ssize_t sent = ::send(socket_.get(), out_.data(), out_.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EAGAIN) {
      return false;
    }
    if (sent < 0 && errno != EINTR) {
      return Error::from_errno("asking ssh-agent");
    }
    out_.erase(0, sent > 0 ? static_cast<std::size_t>(sent) : 0);
  }
  return true;
}

// Returns true when the whole reply is there.
Result<bool> KeyAgent::receive() {
  for (;;) {
    std::size_t whole = kLengthBytes;
    if (reply_.size() >= kLengthBytes) {
      const std::size_t size = WireReader(reply_).number();
      if (size == 0 || size > kMaxReply) {
        return broken();
      }
      whole += size;
    }
    if (reply_.size() == whole) {
      return true;
    }
    std::array<char, 4096> buffer{};
    const ssize_t got = ::recv(socket_.get(), buffer.data(), std::min(buffer.size(), whole - reply_.size()), 0);
    if (got == 0) {
      return Error(Code::kLostPeer, "ssh-agent closed the connection");
    }
    if (got < 0 && errno == EAGAIN) {
      return false;
    }
    if (got < 0 && errno != EINTR) {
      return Error::from_errno("reading from ssh-agent");
    }
    reply_.append(buffer.data(), got > 0 ? static_cast<std::size_t>(got) : 0);
  }
}

Result<SshStep> KeyAgent::exchange(const std::string& request) {
  if (!is_asked_) {
    is_asked_ = true;
    reply_.clear();
    out_ = wire_text(request);
  }
  const auto is_sent = send_rest();
  const auto is_there = is_sent.ok() && is_sent.value() ? receive() : is_sent;
  is_asked_ = is_there.ok() && !(is_sent.value() && is_there.value());
  HVD_TRY(is_there);
  return is_asked_ ? SshStep::kAgain : SshStep::kDone;
}

Result<SshStep> KeyAgent::list() {
  HVD_TRY_ASSIGN(const SshStep step, exchange(std::string(1, kListRequest)));
  if (step == SshStep::kAgain) {
    return step;
  }
  WireReader in(std::string_view(reply_).substr(kLengthBytes));
  if (in.byte() != kListReply) {
    return Error(Code::kAuth, "ssh-agent does not list its keys");
  }
  for (std::size_t left = in.number(); left > 0 && in.ok(); --left) {
    const std::string_view blob = in.text();
    const std::string_view comment = in.text();
    if (in.ok()) {
      keys_.push_back({std::string(blob), std::string(comment)});
    }
  }
  return in.ok() ? Result<SshStep>(SshStep::kDone) : Result<SshStep>(broken());
}

Result<SshStep> KeyAgent::sign(std::string_view blob, std::string_view data) {
  const std::string_view algorithm = algorithm_in(data);
  const std::uint32_t flags = flags_for(algorithm);
  HVD_TRY_ASSIGN(const SshStep step,
                 exchange(std::string(1, kSignRequest) + wire_text(blob) + wire_text(data) + wire_number(flags)));
  if (step == SshStep::kAgain) {
    return step;
  }
  WireReader in(std::string_view(reply_).substr(kLengthBytes));
  if (in.byte() != kSignReply) {
    return Error(Code::kAuth, "ssh-agent refused to sign");
  }
  WireReader signature(in.text());
  const std::string_view made_with = signature.text();
  signature_ = signature.text();
  if (!in.ok() || !signature.ok()) {
    return broken();
  }
  return made_with == algorithm ? Result<SshStep>(step)
                                : Error(Code::kAuth, "ssh-agent signs as " + std::string(made_with) + ", not as " +
                                                         std::string(algorithm));
}

}  // namespace hvd::launch

#include "runtime/io/pass_fds.h"

#include <sys/socket.h>

#include <cstring>

namespace hvd {
namespace {

constexpr std::size_t kFdBytes = 2 * sizeof(int);

// Envelope is a msghdr of one part, with room for two descriptors. It contains pointers to itself, so it must not move.
struct Envelope {
  Envelope(void* bytes, std::size_t size) : part{bytes, size} {
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
  }
  Envelope(const Envelope&) = delete;
  Envelope& operator=(const Envelope&) = delete;

  iovec part;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kFdBytes)> control{};
  msghdr header{};
};

}  // namespace

Result<void> pass_fds(int socket, int first, int second, Bytes bytes) {
  if (bytes.empty() || bytes.size() > kMaxPassedBytes) {
    return Error(Code::kInvalid, "descriptors are passed with 1 to 4096 bytes");
  }
  Envelope envelope(const_cast<std::uint8_t*>(bytes.data()), bytes.size());  // sendmsg(2) does not change the bytes
  cmsghdr* const header = CMSG_FIRSTHDR(&envelope.header);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(kFdBytes);
  const std::array<int, 2> fds = {first, second};
  std::memcpy(CMSG_DATA(header), fds.data(), kFdBytes);
  const ssize_t sent = ::sendmsg(socket, &envelope.header, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent < 0) {
    return Error::from_errno("sendmsg");
  }
  if (static_cast<std::size_t>(sent) != bytes.size()) {
    return Error(Code::kLostPeer, "descriptors were passed only in part");
  }
  return {};
}

Result<PassedFds> receive_fds(int socket) {
  PassedFds passed;
  passed.bytes.resize(kMaxPassedBytes);
  Envelope envelope(passed.bytes.data(), passed.bytes.size());
  msghdr& message = envelope.header;
  const ssize_t got = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (got < 0) {
    return Error::from_errno("recvmsg");
  }
  passed.bytes.resize(static_cast<std::size_t>(got));
  // Own every descriptor that has come from here on, even if it should not have come.
  std::size_t count = 0;
  for (const cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, const_cast<cmsghdr*>(header))) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) {
      continue;
    }
    for (std::size_t at = 0; CMSG_LEN(at + sizeof(int)) <= header->cmsg_len; at += sizeof(int)) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + at, sizeof fd);
      Fd owned(fd);
      if (count < passed.fds.size()) {
        passed.fds[count] = std::move(owned);
      }
      ++count;
    }
  }
  if (count != passed.fds.size() || (message.msg_flags & (MSG_CTRUNC | MSG_TRUNC)) != 0) {
    return Error(Code::kProtocol, "two descriptors were expected, " + std::to_string(count) + " came");
  }
  return passed;
}

}  // namespace hvd

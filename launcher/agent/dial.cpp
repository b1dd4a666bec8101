#include "launcher/agent/dial.h"

#include <errno.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <map>

#include "runtime/base/socket.h"
#include "runtime/rendezvous/handshake.h"

namespace hvd::launch {
namespace {

// What answers at an address, but is no launcher, does not keep the others waiting for longer.
constexpr auto kProofTime = std::chrono::seconds(10);
// A launcher that many strangers call lets the oldest of them go, which may be us.
constexpr int kRounds = 3;
constexpr auto kBetweenRounds = std::chrono::milliseconds(200);

struct Attempt {
  SocketAddress address;
  Fd fd;  // not open: it has failed
};

Result<void> prove_to_launcher(int fd, const JobSecret& secret, int rank, Deadline deadline) {
  HVD_TRY_ASSIGN(const Nonce nonce, make_nonce());
  HandshakeConnector handshake(secret, LinkClaim{LinkRole::kAgent, rank, kLauncher}, nonce);
  return prove(fd, handshake, deadline);
}

// What came of each address, in their order.
class Failures {
 public:
  explicit Failures(const std::vector<std::string>& addresses) : addresses_(addresses) {}
  void add(const std::string& address, const std::string& why) { why_[address] = why; }
  [[nodiscard]] std::string text() const {
    std::string all;
    for (const std::string& address : addresses_) {
      const auto found = why_.find(address);
      const std::string why = found == why_.end() ? "no answer" : found->second;
      all += (all.empty() ? "" : "; ") + (why.find(address) == std::string::npos ? address + ": " : "") + why;
    }
    return all;
  }

 private:
  const std::vector<std::string>& addresses_;
  std::map<std::string, std::string> why_;
};

std::vector<Attempt> start_all(const std::vector<SocketAddress>& addresses, Failures& failures) {
  std::vector<Attempt> attempts;
  for (const SocketAddress& address : addresses) {
    auto started = start_connect_tcp(address);
    if (started.ok()) {
      attempts.push_back(Attempt{address, std::move(started).value()});
    } else {
      failures.add(address.text(), started.error().message());
    }
  }
  return attempts;
}

// The first attempt that has led to the launcher; nothing when all have failed or the deadline has passed.
Fd first_proven(std::vector<Attempt> attempts, const JobSecret& secret, int rank, Deadline deadline,
                Failures& failures) {
  while (!attempts.empty() && !deadline.has_passed()) {
    std::vector<pollfd> waits;
    for (const Attempt& attempt : attempts) {
      waits.push_back(pollfd{attempt.fd.get(), POLLOUT, 0});
    }
    if (::poll(waits.data(), waits.size(), deadline.poll_ms()) < 0 && errno != EINTR) {
      failures.add(attempts.front().address.text(), Error::from_errno("poll").message());
      return Fd();
    }
    for (std::size_t i = 0; i < attempts.size(); ++i) {
      if (waits[i].revents == 0) {
        continue;
      }
      const std::string address = attempts[i].address.text();
      Result<void> outcome = finish_connect(attempts[i].fd.get(), "connect to " + address);
      if (outcome.ok()) {
        const Deadline patience(std::min(deadline.at(), Deadline::after(kProofTime).at()));
        outcome = prove_to_launcher(attempts[i].fd.get(), secret, rank, patience);
      }
      if (outcome.ok()) {
        return std::move(attempts[i].fd);
      }
      failures.add(address, outcome.error().message());
      attempts[i].fd.reset();
    }
    std::erase_if(attempts, [](const Attempt& attempt) { return !attempt.fd.is_open(); });
  }
  return Fd();
}

}  // namespace

Result<Fd> dial_launcher(const std::vector<std::string>& addresses, const JobSecret& secret, int rank,
                         Deadline deadline) {
  std::vector<SocketAddress> parsed;
  for (const std::string& text : addresses) {
    HVD_TRY_ASSIGN(const SocketAddress address, SocketAddress::parse(text));
    parsed.push_back(address);
  }
  Failures failures(addresses);
  for (int round = 0; round < kRounds && !deadline.has_passed(); ++round) {
    if (round > 0) {
      ::poll(nullptr, 0, static_cast<int>(kBetweenRounds.count()));
    }
    if (Fd fd = first_proven(start_all(parsed, failures), secret, rank, deadline, failures); fd.is_open()) {
      HVD_TRY(tune_tcp(fd.get()));
      return fd;
    }
  }
  return Error(Code::kUnreachable, "cannot call hvdrun back (" + failures.text() +
                                       "); is a firewall between this host and the one where hvdrun runs?");
}

}  // namespace hvd::launch

#include "launcher/agent/dial.h"

#include <errno.h>
#include <poll.h>
#include <sys/utsname.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "runtime/io/socket.h"
#include "runtime/rendezvous/handshake.h"

namespace hvd::launch {
namespace {

// A server that answers at an address but is no launcher delays the others by no more than this.
constexpr auto kProofTime = std::chrono::seconds(10);
// A launcher that many strangers call closes the oldest connection, which may be ours. So we try more than once.
constexpr int kRounds = 3;
constexpr auto kBetweenRounds = std::chrono::milliseconds(200);

struct Attempt {
  SocketAddress address;
  Fd fd;  // not open: it has failed
};

// Returns the name that this node gives itself, as far as a claim has room.
std::string own_name() {
  struct utsname system{};
  std::string name = ::uname(&system) == 0 ? std::string(system.nodename).substr(0, kMaxClaimText) : "";
  std::replace_if(name.begin(), name.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return name;
}

struct Caller {
  const CallKey& key;
  int rank = 0;
};

Result<RecordKeys> prove_to_launcher(const Attempt& attempt, const Caller& caller, Deadline deadline) {
  HVD_TRY_ASSIGN(const Nonce nonce, make_nonce());
  HVD_TRY_ASSIGN(KeyPair pair, KeyPair::make());
  LinkClaim claim{LinkRole::kAgent, caller.rank, kLauncher, own_name(), attempt.address.text()};
  HandshakeConnector handshake(caller.key.secret, std::move(claim), nonce, std::move(pair), caller.key.launcher);
  HVD_TRY(prove(attempt.fd.get(), handshake, deadline));
  return handshake.keys();
}

// Failures are what came of each address, in their order.
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

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    text += (text.empty() ? "" : ", ") + word;
  }
  return text;
}

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

// Returns the first attempt that led to the launcher, or nothing when all failed or the deadline has passed.
std::optional<DialedLauncher> first_proven(std::vector<Attempt> attempts, const Caller& caller, Deadline deadline,
                                           Failures& failures) {
  while (!attempts.empty() && !deadline.has_passed()) {
    std::vector<pollfd> waits;
    for (const Attempt& attempt : attempts) {
      waits.push_back(pollfd{attempt.fd.get(), POLLOUT, 0});
    }
    if (::poll(waits.data(), waits.size(), deadline.poll_ms()) < 0 && errno != EINTR) {
      failures.add(attempts.front().address.text(), Error::from_errno("poll").message());
      return std::nullopt;
    }
    for (std::size_t i = 0; i < attempts.size(); ++i) {
      if (waits[i].revents == 0) {
        continue;
      }
      const std::string address = attempts[i].address.text();
      const Result<void> connected = finish_connect(attempts[i].fd.get(), "connect to " + address);
      const Deadline patience(std::min(deadline.at(), Deadline::after(kProofTime).at()));
      const Result<RecordKeys> proven =
          connected.ok() ? prove_to_launcher(attempts[i], caller, patience) : Result<RecordKeys>(connected.error());
      if (proven.ok()) {
        return DialedLauncher{std::move(attempts[i].fd), proven.value()};
      }
      failures.add(address, proven.error().message());
      attempts[i].fd.reset();
    }
    std::erase_if(attempts, [](const Attempt& attempt) { return !attempt.fd.is_open(); });
  }
  return std::nullopt;
}

}  // namespace

std::vector<std::string> addresses_elsewhere(const std::vector<std::string>& addresses,
                                             const std::vector<std::string>& own_ips) {
  std::vector<std::string> others;
  for (const std::string& text : addresses) {
    const auto address = SocketAddress::parse(text);
    const std::string ip = address.ok() ? address.value().ip() : "";
    const bool is_own = std::find(own_ips.begin(), own_ips.end(), ip) != own_ips.end();
    if (!is_own && !ip.starts_with("127.") && ip != "::1") {
      others.push_back(text);
    }
  }
  return others;
}

Result<DialedLauncher> dial_launcher(const CallPlace& place, const CallKey& key, int rank, Deadline deadline) {
  std::vector<std::string> addresses = place.addresses;
  const std::string stack = own_network_stack();
  if (stack == "-" || stack != place.stack) {
    HVD_TRY_ASSIGN(const std::vector<std::string> own_ips, interface_ips());
    addresses = addresses_elsewhere(place.addresses, own_ips);
    if (addresses.empty()) {
      return Error(Code::kUnreachable, "cannot call hvdrun back: each of its addresses is one of this host too (" +
                                           joined(place.addresses) + ")");
    }
  }
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
    if (auto dialed = first_proven(start_all(parsed, failures), Caller{key, rank}, deadline, failures)) {
      HVD_TRY(tune_tcp(dialed->fd.get()));
      return std::move(*dialed);
    }
  }
  return Error(Code::kUnreachable, "cannot call hvdrun back (" + failures.text() +
                                       "); is a firewall between this host and the one where hvdrun runs?");
}

}  // namespace hvd::launch

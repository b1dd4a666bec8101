#include "launcher/agent/dial.h"

#include <errno.h>
#include <poll.h>
#include <sys/utsname.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include <netdb.h>
#include <resolv.h>
#ifdef __GLIBC__
#include <nss.h>
#endif

#include "runtime/base/text.h"
#include "runtime/io/name_lookup.h"
#include "runtime/io/socket.h"
#include "runtime/rendezvous/handshake.h"

namespace hvd::launch {
namespace {

// A server that answers at an address but is no launcher delays the others by no more than this.
constexpr auto kProofTime = std::chrono::seconds(10);
// A launcher that many strangers call closes the oldest connection, which may be ours. So we try more than once.
constexpr int kRounds = 3;
constexpr auto kBetweenRounds = std::chrono::milliseconds(200);
// A name may lead to a pod that is gone, which answers nothing. After so long the name is looked up again.
constexpr auto kNameTime = std::chrono::seconds(10);
constexpr auto kBetweenLookups = std::chrono::seconds(1);

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
  const JobSecret& secret;
  std::optional<KeyShare> launcher;  // the only share that the launcher may send; none: any
  int rank = 0;
};

Result<RecordKeys> prove_to_launcher(const Attempt& attempt, const Caller& caller, Deadline deadline) {
  HVD_TRY_ASSIGN(const Nonce nonce, make_nonce());
  HVD_TRY_ASSIGN(KeyPair pair, KeyPair::make());
  LinkClaim claim{LinkRole::kAgent, caller.rank, kLauncher, own_name(), attempt.address.text()};
  HandshakeConnector handshake(caller.secret, std::move(claim), nonce, std::move(pair), caller.launcher);
  HVD_TRY(prove(attempt.fd.get(), handshake, deadline));
  return handshake.keys();
}

// Failures are what came of each address, in their order.
class Failures {
 public:
  explicit Failures(const std::vector<std::string>& addresses) : addresses_(addresses) {}
  void add(const std::string& address, const std::string& why) { why_[address] = why; }
  // As add(), where somebody answered but has not proven to be the launcher.
  void add_unproven(const std::string& address, const std::string& why) {
    add(address, why);
    has_answer_ = true;
  }
  [[nodiscard]] bool has_answer() const { return has_answer_; }
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
  bool has_answer_ = false;
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
      if (connected.ok()) {
        failures.add_unproven(address, proven.error().message());
      } else {
        failures.add(address, proven.error().message());
      }
      attempts[i].fd.reset();
    }
    std::erase_if(attempts, [](const Attempt& attempt) { return !attempt.fd.is_open(); });
  }
  return std::nullopt;
}

// A static program must not load the system's own modules for names (nsswitch.conf), which may belong to another libc.
// The two that are part of ours are all that a pod needs. A server that is silent is asked once, for a second. musl has
// these two alone, and takes its times from resolv.conf.
void use_own_lookups() {
#ifdef __GLIBC__
  ::__nss_configure_lookup("hosts", "files dns");
#endif
  if (::res_init() == 0) {
    _res.retrans = 1;
    _res.retry = 1;
  }
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

Result<DialedLauncher> dial_launcher(const CallPlace& place, const CallKey& key, int rank, Deadline deadline,
                                     const std::string& advice) {
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
    if (auto dialed =
            first_proven(start_all(parsed, failures), Caller{key.secret, key.launcher, rank}, deadline, failures)) {
      HVD_TRY(tune_tcp(dialed->fd.get()));
      return std::move(*dialed);
    }
  }
  return Error(Code::kUnreachable, "cannot call hvdrun back (" + failures.text() + "); " + advice);
}

Result<LauncherName> parse_launcher_name(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  const auto port =
      colon == std::string::npos ? std::nullopt : parse_number<int>(std::string_view(text).substr(colon + 1), 1, 65535);
  if (!port || colon == 0) {
    return Error(Code::kInvalid,
                 "'" + text + "': expected the launcher's name and port, as in job-launcher-0-0.job:4711");
  }
  return LauncherName{text.substr(0, colon), *port};
}

Result<DialedLauncher> dial_by_name(const LauncherName& name, const JobSecret& secret, int rank, Deadline deadline,
                                    const std::function<void(const std::string&)>& say) {
  use_own_lookups();
  const std::string who = "hvdrun at " + name.text();
  std::string why;
  bool has_said = false;
  for (int unproven = 0; unproven < kRounds;) {
    if (const auto found = look_up_name(name.host, name.port, AF_UNSPEC, 0); found.ok()) {
      std::vector<std::string> addresses;
      for (const SocketAddress& address : found.value()) {
        addresses.push_back(address.text());
      }
      Failures failures(addresses);
      const Deadline patience(std::min(deadline.at(), Deadline::after(kNameTime).at()));
      if (auto dialed =
              first_proven(start_all(found.value(), failures), Caller{secret, {}, rank}, patience, failures)) {
        HVD_TRY(tune_tcp(dialed->fd.get()));
        return std::move(*dialed);
      }
      why = failures.text();
      unproven += failures.has_answer() ? 1 : 0;
    } else {
      why = name.host + ": " + found.error().message();
    }
    if (deadline.has_passed()) {
      return Error(Code::kTimeout, "cannot call " + who + " within the start timeout (" + why +
                                       "); does it run, and is this its name?");
    }
    if (!std::exchange(has_said, true)) {
      say("waiting for " + who + " (" + why + ")");
    }
    ::poll(nullptr, 0, std::min<int>(deadline.poll_ms(), std::chrono::milliseconds(kBetweenLookups).count()));
  }
  return Error(Code::kAuth, who + " refuses this agent, number " + std::to_string(rank) + " (" + why +
                                "); have both the same key file, and has another agent this number?");
}

}  // namespace hvd::launch

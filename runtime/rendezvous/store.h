// Store: how the ranks of a job find each other. Small values under names, set once, waited for.
//
// Two implementations: StoreClient (through the node's agent to the launcher) and MemoryStore (ranks as threads,
// tests).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/interrupt.h"
#include "runtime/base/result.h"
#include "runtime/rendezvous/failure_news.h"

namespace hvd {

inline constexpr std::size_t kSecretBytes = 32;
using JobSecret = std::array<std::uint8_t, kSecretBytes>;

// What an agent or launcher tells a rank without being asked.
struct Notice {
  std::string cause;  // "rank 2 on node2 was killed by signal 9 (SIGKILL)": why the job is over
};

class Store {
 public:
  virtual ~Store() = default;

  // Every rank calls it with the same key; returns all ranks' values in rank order once all have called. A key is used
  // for one exchange only. Blocks until the deadline; a Notice that arrives meanwhile ends it with kLostPeer.
  Result<std::vector<std::string>> exchange(const std::string& key, const std::string& value, Deadline deadline) {
    NoInterrupt nobody;
    return exchange_while(key, value, deadline, nobody);
  }
  // The same for a rank that hears of the job's end also by other means, and gives up with `interrupt`'s error. This is
  // asked without any lock, and may call poll_notice().
  virtual Result<std::vector<std::string>> exchange_while(const std::string& key, const std::string& value,
                                                          Deadline deadline, Interrupt& interrupt) = 0;

  // The secret of the job, known to its launcher, agents and ranks only.
  [[nodiscard]] virtual const JobSecret& secret() const = 0;

  // Readable when poll_notice() has news; -1 if this store never has. For the engine's loop.
  [[nodiscard]] virtual int notice_fd() const = 0;
  // The first notice that has arrived, from then on at every call: what came later came of it. The loss of the agent
  // is one too. Does not block.
  virtual std::optional<Notice> poll_notice() = 0;
  // Tells who started the ranks, if anybody did. Does not block: nothing is waited for that would keep a rank from
  // failing.
  virtual void tell(const FailureNews& /*news*/) {}

 protected:
  Store() = default;
  Store(const Store&) = default;
  Store& operator=(const Store&) = default;
};

}  // namespace hvd

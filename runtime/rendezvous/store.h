// Store is how the ranks of a job find each other. Every rank posts a small value under a key, and receives the values
// of all ranks.
//
// Four classes implement it. StoreClient goes through the node's agent to the launcher, and MpiStore through the MPI
// that has started the ranks. SubsetStore serves some of the ranks of another store. MemoryStore serves ranks that are
// threads, in tests. A job of one rank needs none.
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

// The key of the first exchange of all ranks, which each of them enters in hvd.init().
inline constexpr const char* kMeetingKey = "mesh";
// The key of the exchange that each rank enters when it has connected to the others.
inline constexpr const char* kMetKey = "mesh-joined";

// A message that an agent or launcher sends to a rank unasked.
struct Notice {
  std::string cause;  // "rank 2 on node2 was killed by signal 9 (SIGKILL)": why the job is over
};

class Store {
 public:
  virtual ~Store() = default;

  // Every rank calls it with the same key; it returns all values in rank order once all ranks have called. A key is
  // used for one exchange only. Blocks until the deadline; a Notice that arrives meanwhile ends it with kLostPeer.
  Result<std::vector<std::string>> exchange(const std::string& key, const std::string& value, Deadline deadline) {
    NoInterrupt nobody;
    return exchange_while(key, value, deadline, nobody);
  }
  // The same for a rank that can learn of the job's end in other ways too, and then gives up with `interrupt`'s error.
  // The interrupt is asked without any lock held, and may call poll_notice().
  virtual Result<std::vector<std::string>> exchange_while(const std::string& key, const std::string& value,
                                                          Deadline deadline, Interrupt& interrupt) = 0;

  // The secret of the job, known to its launcher, agents and ranks only.
  [[nodiscard]] virtual const JobSecret& secret() const = 0;

  // The descriptor that becomes readable when poll_notice() has something; -1 if this store has none. For the engine's
  // loop.
  [[nodiscard]] virtual int notice_fd() const = 0;
  // Returns the first notice that has arrived, and the same at every later call, because later ones are its
  // consequences. The loss of the agent is a notice too. Does not block.
  virtual std::optional<Notice> poll_notice() = 0;
  // True once the job has a newer generation, which this rank joins when it leaves this one. Thread: any.
  [[nodiscard]] virtual bool has_changed() const { return false; }
  // True while ranks are on their way that will join the job. Thread: any.
  [[nodiscard]] virtual bool is_growing() const { return false; }
  // Sends the report to the agent that started the ranks, if there is one. Does not block, so that a failing rank can
  // go on to end.
  virtual void tell(const FailureNews& /*news*/) {}
  // The same, whatever the thread that owns the store does. Blocks while the agent takes it, for a second at most.
  // Thread: any.
  virtual void tell_apart(const FailureNews& /*news*/) const {}

 protected:
  Store() = default;
  Store(const Store&) = default;
  Store& operator=(const Store&) = default;
};

}  // namespace hvd

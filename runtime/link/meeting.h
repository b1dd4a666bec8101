// Meeting makes all connections of a rank at once, in one poll loop that ends when the last one is up. The rank
// connects to some ranks and accepts connections of others, and each connection is proven and checked (handshake.h).
//
// A stranger's connection costs one log line at most, and holds up no other. An accepted connection has its own
// deadline, and not a byte is read beyond its claim. Thread: joining only.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/fd.h"
#include "runtime/base/log.h"
#include "runtime/base/result.h"
#include "runtime/io/socket.h"
#include "runtime/rendezvous/handshake.h"
#include "runtime/rendezvous/store.h"

namespace hvd {

class Meeting {
 public:
  struct Met {
    LinkClaim claim;
    Fd fd;
    std::optional<RecordKeys> keys;  // set when the connection is encrypted after the handshake
  };
  struct Options {
    std::string congestion;      // of connections by TCP: see choose_congestion()
    bool is_sealed = false;      // connections by TCP are encrypted
    std::vector<int> job_ranks;  // by which errors name the ranks of a process set; empty: as they are
  };

  Meeting(int rank, Store& store, Log& log, Deadline deadline, Options options);
  ~Meeting();
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  // Not owned; must stay open until run() has returned.
  void add_listener(int listener, bool is_tcp) { listeners_.push_back(Listener{listener, is_tcp}); }
  void expect(LinkRole role, int from) { expected_.push_back(LinkClaim{role, from, rank_}); }
  Result<void> connect_by_tcp(LinkRole role, int to, const SocketAddress& address);
  Result<void> connect_by_unix(LinkRole role, int to, const std::string& path);

  // Returns once every connection is up, or with the error of the first one that cannot be made, naming rank and
  // address.
  Result<std::vector<Met>> run();

 private:
  struct Outgoing;
  struct Incoming;
  struct Listener {
    int fd = -1;
    bool is_tcp = false;
  };

  Result<void> turn();
  Result<void> connected(LinkRole role, int to, const std::string& address, Fd fd, bool is_tcp);
  [[nodiscard]] Result<std::optional<KeyPair>> make_key(bool is_tcp) const;
  [[nodiscard]] std::optional<RecordKeys> keys_of(bool is_tcp, const RecordKeys& keys) const;
  Result<void> accept_some(const Listener& listener);
  Result<void> advance(Outgoing& outgoing);
  void advance(Incoming& incoming);
  void admit(Incoming& incoming, const LinkClaim& claim);
  void drop(Incoming& incoming, const std::string& why);
  [[nodiscard]] TimePoint next_wake() const;
  [[nodiscard]] Error timed_out() const;
  [[nodiscard]] std::string name_of_rank(int rank) const;  // "rank 3"
  [[nodiscard]] std::string who(int rank, const std::string& address) const;

  // constant after construction
  int rank_;
  Store& store_;
  Log& log_;
  const Options options_;
  // joining only
  Patience patience_;
  std::vector<Listener> listeners_;
  std::vector<LinkClaim> expected_;  // connections that have not been accepted yet
  std::vector<std::unique_ptr<Outgoing>> outgoing_;
  std::vector<std::unique_ptr<Incoming>> incoming_;
  std::vector<Met> met_;
  std::uint64_t strangers_ = 0;  // whose connections were closed
};

}  // namespace hvd

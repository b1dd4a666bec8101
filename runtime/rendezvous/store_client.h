// StoreClient: the Store of a rank that hvdrun started: a conversation with the agent of its node (store_wire.h).
//
// Thread: one at a time (first the thread that joins, then the engine). Says Goodbye when destroyed, except in a forked
// child, which shares the socket but is not the rank.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/fd.h"
#include "runtime/base/frame.h"
#include "runtime/rendezvous/store.h"

namespace hvd {

class StoreClient final : public Store {
 public:
  // Connects to the agent's socket and is welcomed, or says why not; kAuth when the agent does not want this process.
  static Result<std::unique_ptr<StoreClient>> connect(const std::string& socket_path, const std::string& token,
                                                      int rank, Deadline deadline);
  // Tells the agent of a failure, on a connection of its own: also before this process has joined, after it has left,
  // and whatever its engine is doing. Thread: any.
  static Result<void> tell_once(const std::string& socket_path, const std::string& token, int rank,
                                const FailureNews& news, Deadline deadline);
  ~StoreClient() override;

  Result<std::vector<std::string>> exchange_while(const std::string& key, const std::string& value, Deadline deadline,
                                                  Interrupt& interrupt) override;
  [[nodiscard]] const JobSecret& secret() const override { return secret_; }
  // The socket. Once the agent is gone it stays readable: stop watching it then.
  [[nodiscard]] int notice_fd() const override { return fd_.get(); }
  std::optional<Notice> poll_notice() override;
  void tell(const FailureNews& news) override;

 private:
  struct Exchanged {
    std::string key;
    std::vector<std::string> values;
  };

  explicit StoreClient(Fd fd);
  Result<void> greet(const std::string& token, int rank, Deadline deadline);
  // Reads what has arrived, without waiting, and sorts it into the members below.
  void pump();
  void take_frame(const Frame& frame);
  // The job is over for this rank; the first cause stays.
  void end(const std::string& cause);
  // Until bytes come, at most as long as an Interrupt may go unasked. Whoever calls it has looked at the members below
  // after everything that pumps.
  [[nodiscard]] Result<void> sleep(Patience& patience, const std::string& what) const;

  // constant after construction
  Fd fd_;
  pid_t owner_;
  // one thread at a time
  FrameDecoder decoder_;
  JobSecret secret_{};
  bool is_welcome_ = false;
  bool is_closed_ = false;              // no more is read: end of file, an error, or bytes that make no sense
  std::optional<std::string> over_;     // why the job is over
  std::optional<Exchanged> exchanged_;  // for the exchange that is waited for
};

}  // namespace hvd

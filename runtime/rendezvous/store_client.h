// StoreClient is the Store of a rank that hvdrun started. It talks to the agent of its node (store_wire.h).
//
// Thread: one at a time (first the thread that joins, then the engine). Its destructor sends Goodbye, except in a
// forked child, which shares the socket but is not the rank.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/fd.h"
#include "runtime/base/frame.h"
#include "runtime/rendezvous/generation_place.h"
#include "runtime/rendezvous/store.h"

namespace hvd {

class StoreClient final : public Store {
 public:
  // Connects to the agent's socket and waits for its Welcome. kAuth: the agent refuses this process. kNotFound: there
  // is no agent any more.
  static Result<std::unique_ptr<StoreClient>> connect(const std::string& socket_path, const std::string& token,
                                                      int rank, Deadline deadline);
  // Reports a failure to the agent on a separate connection. It works before this process has joined, after it has
  // left, and whatever its engine is doing. Thread: any.
  static Result<void> tell_once(const std::string& socket_path, const std::string& token, int rank,
                                const FailureNews& news, Deadline deadline);
  ~StoreClient() override;

  Result<std::vector<std::string>> exchange_while(const std::string& key, const std::string& value, Deadline deadline,
                                                  Interrupt& interrupt) override;
  [[nodiscard]] const JobSecret& secret() const override { return secret_; }
  // Returns the socket. Once the agent is gone it stays readable, and the caller must stop watching it.
  [[nodiscard]] int notice_fd() const override { return fd_.get(); }
  std::optional<Notice> poll_notice() override;
  void tell(const FailureNews& news) override;
  void tell_apart(const FailureNews& news) const override;
  [[nodiscard]] bool has_changed() const override { return has_changed_.load(std::memory_order_relaxed); }
  [[nodiscard]] bool is_growing() const override { return is_growing_.load(std::memory_order_relaxed); }
  // The place in the generation that has taken this process in; nothing: the one it was started with.
  [[nodiscard]] const std::optional<GenerationPlace>& place() const { return place_; }

 private:
  struct Exchanged {
    std::string key;
    std::vector<std::string> values;
  };

  // How the agent is reached, and who calls.
  struct Caller {
    std::string socket_path;
    std::string token;
    int rank = -1;
  };

  StoreClient(Fd fd, Caller caller);
  Result<void> greet(Deadline deadline);
  // Reads what has arrived, without waiting, and stores it in the members below.
  void pump();
  void take_frame(const Frame& frame);
  [[nodiscard]] bool take_welcome(ByteReader& reader);
  [[nodiscard]] Result<void> send_exchange(const std::string& key, const std::string& value, Deadline deadline);
  // Asks the launcher who has not come to the exchange, and returns `late` if it does not answer soon.
  Error name_missing(const std::string& key, const Error& late);
  // Records that the job is over for this rank; only the first cause is kept.
  void end(const std::string& cause);
  // Sleeps until bytes come, at most for as long as the Interrupt may go unasked. The caller must have looked at the
  // members below since anything last called pump(), because bytes that were read then wake nobody.
  [[nodiscard]] Result<void> sleep(Patience& patience, const std::string& what) const;

  // constant after construction
  Fd fd_;
  const Caller caller_;
  pid_t owner_;
  // one thread at a time
  FrameDecoder decoder_;
  JobSecret secret_{};
  std::optional<GenerationPlace> place_;
  bool is_welcome_ = false;
  bool is_closed_ = false;           // no more is read: end of file, an error, or bytes that make no sense
  std::optional<std::string> over_;  // why the job is over
  std::atomic<bool> has_changed_ = false;
  std::atomic<bool> is_growing_ = false;
  bool is_released_ = false;
  std::optional<Exchanged> exchanged_;  // the answer that the current exchange waits for
};

}  // namespace hvd

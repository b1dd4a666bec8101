// SshSession is one socket, one libssh2 session and one channel. It never blocks: every step answers kAgain until it is
// done. It decides nothing: SshConversation drives it, and SshLogin logs in through it.
//
// Thread: loop only. Destroying it at any point frees everything at once and waits for nobody.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "launcher/ssh/known_hosts.h"
#include "launcher/ssh/ssh_intake.h"
#include "runtime/base/bytes.h"
#include "runtime/base/fd.h"
#include "runtime/base/result.h"

// These are libssh2's own names, declared here so that its header stays in ssh_session.cpp and ssh_login.cpp.
struct _LIBSSH2_SESSION;
struct _LIBSSH2_CHANNEL;

namespace hvd::launch {

enum class SshStep : std::uint8_t { kAgain, kDone };

class SshSession {
 public:
  // Exit says how the remote command ended. It is known once wait_closed() is done.
  struct Exit {
    int status = 0;
    std::string signal;  // "KILL"; empty: exited by itself
  };

  static Result<std::unique_ptr<SshSession>> create(Fd socket);
  ~SshSession();
  SshSession(const SshSession&) = delete;
  SshSession& operator=(const SshSession&) = delete;

  // Allows these algorithms and no others. An empty list leaves libssh2's own, except for host keys. Fails when libssh2
  // knows nothing of a list. Call it before handshake().
  Result<void> allow(const SshAlgorithms& algorithms);
  Result<SshStep> handshake();
  [[nodiscard]] HostKey host_key() const;
  Result<SshStep> open_channel();
  Result<SshStep> exec(const std::string& command);

  enum class Source : std::uint8_t { kOutput, kErrors };
  // Returns bytes read; 0: none now, or the end (ask at_end()). Reads nothing while a write is half-sent, see pending_.
  Result<std::size_t> read(Source source, MutableBytes into);
  // Returns bytes taken; 0: none now. Offer the same bytes again next time.
  Result<std::size_t> write(Bytes bytes);
  Result<SshStep> send_end_of_input();
  [[nodiscard]] bool at_end() const;
  Result<SshStep> wait_closed();
  [[nodiscard]] Exit exit() const;

  // Returns what the loop should wait for.
  [[nodiscard]] std::uint32_t wanted_events() const;
  // Says that the peer has closed or reset the connection.
  [[nodiscard]] bool is_peer_gone() const;
  // The key exchange failed because both sides have no algorithm in common. Trying again cannot help.
  [[nodiscard]] bool has_no_common_algorithm() const;
  // Says why the server is no longer read, if so. Trying again cannot help.
  [[nodiscard]] const std::optional<Error>& refusal() const { return intake_.refusal(); }
  // Call it when the server is the right one and has let the user in: from then on it may send as much as it likes.
  void trust() { intake_.lift_limit(); }
  // libssh2 took packets off the socket that let us continue: the socket will not become readable for them again.
  [[nodiscard]] bool has_work(bool has_output) const;
  [[nodiscard]] int fd() const { return socket_.get(); }
  [[nodiscard]] _LIBSSH2_SESSION* raw() const { return session_; }

  // Returns libssh2's last error as an Error: "what: its words".
  [[nodiscard]] Error last_error(const std::string& what) const;
  // Registers a step of another object (SshLogin) that is half done. When it must end early, it is called until it
  // returns true. nullptr means that it is finished.
  void set_unfinished(std::function<bool()> step) { unfinished_ = std::move(step); }
  // Ends a half-done step, and the connection with it. Does nothing when there is none.
  void abandon_step();

 private:
  enum class Op : std::uint8_t { kNone, kRead, kWrite };

  explicit SshSession(Fd socket) : socket_(std::move(socket)), intake_(socket_.get()) {}
  Result<SshStep> step(int rc, const char* what, std::function<int()> again);
  Result<void> allow_of(int method, const char* name, const std::string& wanted);
  void note_block(Op op);
  void shut_down();

  Fd socket_;
  SshIntake intake_;
  _LIBSSH2_SESSION* session_ = nullptr;
  _LIBSSH2_CHANNEL* channel_ = nullptr;
  // This operation left a packet half-sent. libssh2 refuses (BAD_USE) to send any other packet before that one is out,
  // and reading sends too (window adjustments). So until then only this operation is repeated.
  Op pending_ = Op::kNone;
  std::function<bool()> unfinished_;
};

std::string libssh2_version_text();

}  // namespace hvd::launch

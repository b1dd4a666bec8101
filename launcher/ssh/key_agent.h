// KeyAgent is one connection to the user's ssh-agent that never blocks. An agent may take minutes, since it may ask its
// user for a confirmation, a PIN or a touch. When it is forwarded from a laptop that sleeps, it may never answer.
// libssh2's own conversation with it blocks, and would stop everything that the loop does.
//
// Protocol: "SSH Agent Protocol", draft-ietf-sshm-ssh-agent. Thread: loop only.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/ssh/ssh_session.h"
#include "runtime/base/fd.h"
#include "runtime/base/result.h"

namespace hvd::launch {

class KeyAgent {
 public:
  struct Key {
    std::string blob;     // the public key as on the wire
    std::string comment;  // as the user gave it
  };

  // Connects to the agent at the socket `path`.
  static Result<std::unique_ptr<KeyAgent>> connect(const std::string& path);
  // Only one request runs at a time. Call it again whenever fd() has wanted_events(), until it does not return kAgain.
  Result<SshStep> list();
  // `data` and `blob` must not change until it is done. Then signature() has the algorithm's own bytes, without its
  // name. kAuth means that the agent, or its user, refused.
  Result<SshStep> sign(std::string_view blob, std::string_view data);

  [[nodiscard]] const std::vector<Key>& keys() const { return keys_; }
  [[nodiscard]] const std::string& signature() const { return signature_; }
  // Says that it was asked and has not answered.
  [[nodiscard]] bool is_asked() const { return is_asked_; }
  [[nodiscard]] int fd() const { return socket_.get(); }
  [[nodiscard]] std::uint32_t wanted_events() const;

 private:
  explicit KeyAgent(Fd socket) : socket_(std::move(socket)) {}
  Result<SshStep> exchange(const std::string& request);
  Result<bool> send_rest();
  Result<bool> receive();

  Fd socket_;
  bool is_asked_ = false;
  std::string out_;    // what is still to be sent
  std::string reply_;  // as far as it has come, with its length before it
  std::vector<Key> keys_;
  std::string signature_;
};

}  // namespace hvd::launch

// KeyAgent: one connection to the user's ssh-agent, never blocking. An agent may take minutes, since it may ask its
// user for a confirmation, a PIN or a touch; or it may never answer, when it is forwarded from a laptop that sleeps.
// libssh2's own talk with it blocks, and with it would block everything that the loop does.
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

  // At the socket `path`.
  static Result<std::unique_ptr<KeyAgent>> connect(const std::string& path);
  // One request at a time: each is called again, when fd() has wanted_events(), until it is not kAgain.
  Result<Step> list();
  // `data` and `blob` as they were until it is done. The signature is then in signature(): bytes of the algorithm's
  // own, without its name. kAuth: the agent refused, as when its user does.
  Result<Step> sign(std::string_view blob, std::string_view data);

  [[nodiscard]] const std::vector<Key>& keys() const { return keys_; }
  [[nodiscard]] const std::string& signature() const { return signature_; }
  // It has been asked, and has not answered.
  [[nodiscard]] bool is_asked() const { return is_asked_; }
  [[nodiscard]] int fd() const { return socket_.get(); }
  [[nodiscard]] std::uint32_t wanted_events() const;

 private:
  explicit KeyAgent(Fd socket) : socket_(std::move(socket)) {}
  Result<Step> exchange(const std::string& request);
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

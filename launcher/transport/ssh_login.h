// SshLogin: logs in with public keys: those of ssh-agent, then identity files. Never asks anybody anything.
//
// Order: agent keys that an identity file names, other agent keys (unless IdentitiesOnly), files; RSA keys last within
// agent and files, because old libssh2 signs them in a way that new servers refuse, and servers allow few attempts.
//
// Thread: loop only. The talk with ssh-agent is synchronous: it is a local socket.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "launcher/transport/key_file.h"
#include "launcher/transport/ssh_config.h"
#include "launcher/transport/ssh_session.h"
#include "runtime/base/result.h"

namespace hvd::launch {

class SshLogin {
 public:
  // `session` must outlive this object.
  SshLogin(SshSession& session, const SshHostConfig& config);
  ~SshLogin();
  SshLogin(const SshLogin&) = delete;
  SshLogin& operator=(const SshLogin&) = delete;

  // kDone: logged in. The error says which keys were tried, which were not and why, and what to do.
  Result<Step> advance();
  // After an error: what the user's own ssh could try that we cannot, as a reason; empty: nothing.
  [[nodiscard]] std::string beyond_us() const;

 private:
  struct AgentKeys;
  struct Candidate {
    KeyFile file;                    // path, or the agent's comment for an agent key
    void* agent_identity = nullptr;  // libssh2_agent_publickey of agent_, when it is an agent key
  };

  Result<Step> ask_methods();
  void collect();
  void collect_agent(const std::vector<KeyFile>& files);
  void skip_unusable(const KeyFile& key);
  int try_candidate(const Candidate& candidate);
  Result<Step> try_keys();
  [[nodiscard]] Error refusal() const;

  // constant after construction
  SshSession& session_;
  const SshHostConfig config_;
  // loop only
  std::unique_ptr<AgentKeys> agent_;
  std::string methods_;  // what the server accepts; empty: not asked yet
  std::vector<Candidate> candidates_;
  std::size_t at_ = 0;
  std::vector<std::string> tried_;
  std::vector<std::string> skipped_;
  bool tried_rsa_ = false;
  std::string unusable_type_;  // of a key that was skipped because libssh2 does not know its kind
  bool was_cut_off_ = false;
};

}  // namespace hvd::launch

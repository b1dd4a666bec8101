// SshLogin logs in with public keys: first those of ssh-agent, then identity files. It never asks anybody for anything.
//
// The order is: agent keys that an identity file names, other agent keys (unless IdentitiesOnly), files. RSA keys are
// last within agent and files, because old libssh2 signs them in a way that new servers refuse, and servers allow few
// attempts.
//
// Thread: loop only. It never blocks, even on an agent that asks its user first or never answers.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "launcher/ssh/key_agent.h"
#include "launcher/ssh/key_file.h"
#include "launcher/ssh/ssh_session.h"
#include "launcher/transport/ssh_config.h"
#include "runtime/base/result.h"

namespace hvd::launch {

class SshLogin {
 public:
  // `session` must outlive this object. `asks_agent` is false when the agent is known not to answer.
  SshLogin(SshSession& session, const SshHostConfig& config, bool asks_agent);
  ~SshLogin();
  SshLogin(const SshLogin&) = delete;
  SshLogin& operator=(const SshLogin&) = delete;

  // Returns kDone once logged in. The error says which keys were tried, which were not and why, and what to do.
  Result<SshStep> advance();
  // Waits says whom advance() waits for besides the session: ssh-agent, until `fd` has those events; -1 means nobody.
  struct Waits {
    int fd = -1;
    std::uint32_t events = 0;
  };
  [[nodiscard]] Waits waits() const;
  // Returns the key that ssh-agent is asked to sign with; empty: it is not asked.
  [[nodiscard]] std::string signs_with() const;
  // Says that the agent is listing its keys, which takes no time unless it does not answer at all.
  [[nodiscard]] bool is_listing() const { return is_listing_; }
  // Continues without the agent's keys at the next advance().
  void give_up_listing();
  // Returns, after an error, what the user's own ssh could try but we cannot, as a reason; it may be empty.
  [[nodiscard]] std::string beyond_us() const;

 private:
  struct Candidate {
    KeyFile file;  // path, or the agent's comment for an agent key
    bool is_agents = false;
  };

  Result<SshStep> ask_methods(std::string& methods);
  void find_agent();
  SshStep list_agent();
  void collect();
  void collect_agent(const std::vector<KeyFile>& files);
  void skip_mute_agent();
  void skip_unusable(const KeyFile& key);
  int try_candidate(const Candidate& candidate);
  int sign(const unsigned char* data, std::size_t size, unsigned char** signature, std::size_t* signature_size);
  Result<SshStep> try_keys();
  [[nodiscard]] Error refusal() const;

  // constant after construction
  SshSession& session_;
  const SshHostConfig config_;
  const bool asks_agent_;
  // loop only
  std::unique_ptr<KeyAgent> agent_;
  bool is_listing_ = false;
  bool is_given_up_ = false;  // this login: nothing is waited for any more
  std::string methods_;       // what the server accepts; empty: not asked yet
  std::string left_;          // the same after all keys, of which it may have taken one; empty: not known
  std::vector<Candidate> candidates_;
  std::size_t at_ = 0;
  std::vector<std::string> tried_;
  std::vector<std::string> skipped_;
  bool tried_rsa_ = false;
  std::string unusable_type_;  // of a key that was skipped because libssh2 does not know its kind
  bool was_cut_off_ = false;
};

}  // namespace hvd::launch

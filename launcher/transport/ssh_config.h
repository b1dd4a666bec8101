// What the user's ssh_config means for one host, learned from `ssh -G HOST`: there is no ssh_config parser of ours.
//
// Value types and pure functions; ssh_query.h runs the program.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/result.h"

namespace hvd::launch {

// The account that runs this process, from the password database: OpenSSH too takes `~` from there, not from $HOME.
struct LocalUser {
  std::string name;
  std::string home;
  std::vector<std::string> environment{};  // "NAME=value": what ${NAME} in ssh_config and SSH_AUTH_SOCK are
  static LocalUser current(std::vector<std::string> environment = {});
};

// One host as the user asked for it.
struct SshRequest {
  std::string host;
  std::string user;           // empty: as ssh_config says
  int port = 0;               // 0: as ssh_config says
  std::string identity_file;  // empty: as ssh_config says
  std::string config_file;    // empty: the usual ones
};

enum class HostKeyPolicy : std::uint8_t {
  kStrict,     // "yes" and "ask": we never prompt, so an unknown key is refused
  kAcceptNew,  // an unknown key is remembered
  kOff,        // an unknown key is accepted
};

// Names with commas between, the best first, as `ssh -G` prints them; empty: it did not say.
struct SshAlgorithms {
  std::string key_exchange;
  std::string host_keys;
  std::string ciphers;
  std::string macs;
};

struct SshHostConfig {
  std::string hostname;
  int port = 22;
  std::string user;
  std::vector<std::string> identity_files;  // absolute, in order
  bool identities_only = false;
  std::string identity_agent;  // the socket's path; empty or "none": no agent
  std::vector<std::string> user_known_hosts;
  std::vector<std::string> global_known_hosts;
  HostKeyPolicy host_key_policy = HostKeyPolicy::kStrict;
  std::string host_key_alias;
  bool hash_known_hosts = false;
  SshAlgorithms algorithms;
  int required_rsa_bits = 0;  // of a host key
  std::string needs_ssh;      // "ProxyJump bastion": what only the user's own ssh can do, in words; empty: nothing
  std::string control_path;   // where a connection of the user's may stand open already; empty: none
  // Ways to log in that we do not have; worth a thought once ours have failed.
  std::vector<std::string> certificate_files;
  bool has_pkcs11 = false;
  bool tries_gssapi = false;
  bool tries_hostbased = false;
  Duration connect_timeout{};  // zero: not set
  int address_family = 0;      // AF_UNSPEC, AF_INET or AF_INET6
};

// A host that ssh would take for an option, or that no name can be, is refused before any process sees it.
Result<void> check_ssh_request(const SshRequest& request);

// The words that make `ssh` go to this host: options, "--" and the host.
std::vector<std::string> ssh_target_words(const SshRequest& request);

// argv of `ssh -G` for this host.
std::vector<std::string> ssh_config_argv(const SshRequest& request);

// What ssh would use with no configuration at all; for machines without the ssh program.
SshHostConfig default_ssh_config(const SshRequest& request, const LocalUser& local);

// The output of `ssh -G`. Words that we do not use are skipped; a number that is none is an Error.
Result<SshHostConfig> parse_ssh_config(std::string_view output, const SshRequest& request, const LocalUser& local);

}  // namespace hvd::launch

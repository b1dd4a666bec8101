// This is what the user's ssh_config means for one host. `ssh -G HOST` says it, so we have no parser of ssh_config.
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

// This is the account that runs this process, from the password database: OpenSSH takes `~` from there, not from $HOME.
struct LocalUser {
  std::string name;
  std::string home;
  std::vector<std::string> environment{};  // "NAME=value": what ${NAME} in ssh_config and SSH_AUTH_SOCK are
  static LocalUser current(std::vector<std::string> environment = {});
};

// This is one host as the user asked for it.
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

// Each is a list of names with commas, the best first, as `ssh -G` prints it. It is empty where ssh did not say.
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
  bool trusts_loopback = false;  // NoHostAuthenticationForLocalhost: each end of a tunnel there has another key
  SshAlgorithms algorithms;
  int required_rsa_bits = 0;  // of a host key
  std::string needs_ssh;      // "ProxyJump bastion": what only the user's own ssh can do, in words; empty: nothing
  std::string control_path;   // where a connection of the user's may stand open already; empty: none
  bool has_remote_command = false;  // RemoteCommand, which is not for us; only an ssh that knows the word tells of it
  // We cannot log in by these. They explain a failure once our own ways have failed.
  std::vector<std::string> certificate_files;
  bool has_pkcs11 = false;
  bool tries_gssapi = false;
  bool tries_hostbased = false;
  Duration connect_timeout{};   // zero: not set
  int connection_attempts = 1;  // a second apart
  int address_family = 0;       // AF_UNSPEC, AF_INET or AF_INET6
};

// Refuses a host that ssh would take for an option, or that no name can be, before any process sees it.
Result<void> check_ssh_request(const SshRequest& request);

// Returns the words that make `ssh` go to this host: options, "--" and the host.
std::vector<std::string> ssh_target_words(const SshRequest& request);

// Returns the argv of `ssh -G` for this host.
std::vector<std::string> ssh_config_argv(const SshRequest& request);

// Returns what ssh would use without any configuration, for machines without the ssh program.
SshHostConfig default_ssh_config(const SshRequest& request, const LocalUser& local);

// Reads the output of `ssh -G`. Words that we do not use are skipped; a malformed number is an Error.
Result<SshHostConfig> parse_ssh_config(std::string_view output, const SshRequest& request, const LocalUser& local);

}  // namespace hvd::launch

#include "launcher/ssh/host_key_policy.h"

namespace hvd::launch {
namespace {

std::string at_line(const KnownHost& entry) {
  return entry.file + ":" + std::to_string(entry.line);
}

// Returns "ssh-keygen -f FILE -R NAME". The name is quoted because of its brackets.
std::string removal(const SshHostConfig& config, const KnownHost& entry) {
  return "ssh-keygen -f '" + entry.file + "' -R '" + known_hosts_name(config) + "'";
}

std::string first_file(const SshHostConfig& config) {
  return config.user_known_hosts.empty() ? "known_hosts" : config.user_known_hosts.front();
}

}  // namespace

Result<HostKeyRuling> rule_on_host_key(const SshHostConfig& config, const std::string& by_hand,
                                       const std::vector<KnownHost>& known, const HostKey& key) {
  const HostKeyCheck check = check_host_key(known, key);
  const std::string shown = key.type + " " + fingerprint(key.blob);
  if (const int bits = rsa_bits(key); bits > 0 && bits < config.required_rsa_bits) {
    return Error(Code::kAuth, "the host key " + shown + " has " + std::to_string(bits) +
                                  " bits, and RequiredRSASize asks for " + std::to_string(config.required_rsa_bits) +
                                  "; give the host an ed25519 key");
  }
  switch (check.verdict) {
    case HostKeyVerdict::kKnown:
      return HostKeyRuling{};
    case HostKeyVerdict::kRevoked:
      return Error(Code::kAuth, "the host key " + shown + " is marked @revoked in " + at_line(check.offending) +
                                    "; do not connect before its owner has explained why");
    case HostKeyVerdict::kChanged:
      return Error(Code::kAuth, "REMOTE HOST IDENTIFICATION HAS CHANGED: the host key is now " + shown + ", but " +
                                    at_line(check.offending) + " says " + fingerprint(check.offending.key.blob) +
                                    "; somebody may be listening in, or the host was reinstalled; if so, try: " +
                                    removal(config, check.offending));
    case HostKeyVerdict::kUnknown:
      break;
  }
  switch (config.host_key_policy) {
    case HostKeyPolicy::kStrict:
      return Error(Code::kAuth, "host key verification failed: the host key " + shown + " of '" +
                                    known_hosts_name(config) + "' is not in " + first_file(config) +
                                    "; to check and accept it, " + by_hand +
                                    ", or set StrictHostKeyChecking accept-new for it");
    case HostKeyPolicy::kAcceptNew:
      return HostKeyRuling{true, "added the new host key " + shown + " to " + first_file(config)};
    case HostKeyPolicy::kOff:
      return HostKeyRuling{false, "accepted the unknown host key " + shown + " (StrictHostKeyChecking no)"};
  }
  return Error(Code::kInternal, "no such host key policy");
}

std::string certified_by(const KnownHost& authority) {
  return at_line(authority) + " has a @cert-authority for it, which only ssh can check";
}

std::string no_common_algorithm(const SshHostConfig& config, const std::vector<KnownHost>& known) {
  std::string types;
  std::string at;
  for (const KnownHost& entry : known) {
    if (entry.as == KnownAs::kHost && types.find(entry.key.type) == std::string::npos) {
      types += (types.empty() ? "" : ", ") + entry.key.type;
      at = at.empty() ? at_line(entry) : at;
    }
  }
  const std::string text = "hvdrun and the server share no algorithm for ";
  const std::string other = "key exchange, cipher or MAC";
  if (types.empty()) {
    return text + "host key, " + other + "; let it offer an ed25519 host key, curve25519-sha256, aes128-ctr and " +
           "hmac-sha2-256";
  }
  return text + "a host key of a type that it is known by (" + types + ", see " + at + "), or for " + other +
         "; where it is known by an RSA key only, add its ed25519 key (ssh-keyscan -t ed25519 -p " +
         std::to_string(config.port) + " " + config.hostname + ") to " + first_file(config);
}

}  // namespace hvd::launch

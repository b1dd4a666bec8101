// known_hosts: is this key the one that we know for this host?
//
// Reads OpenSSH's format itself rather than through libssh2, which knows no wildcards, no @revoked, and not the line
// that an entry stands in; a changed key must be reported as file:line. Value types; files are read and written by the
// two functions that say so.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/transport/ssh_config.h"
#include "runtime/base/result.h"

namespace hvd::launch {

struct HostKey {
  std::string type;  // "ssh-ed25519"
  std::string blob;  // as on the wire
};

// The type stands at the start of every key blob; empty when the blob is malformed.
std::string key_type_of_blob(std::string_view blob);
// "SHA256:..." as OpenSSH prints it.
std::string fingerprint(std::string_view blob);

// What the mark before an entry makes of its key.
enum class KnownAs : std::uint8_t {
  kHost,       // none: the host's own
  kRevoked,    // @revoked
  kAuthority,  // @cert-authority: it signs the host's certificates, and is no key of the host
};

struct KnownHost {
  HostKey key;
  KnownAs as = KnownAs::kHost;
  bool is_portless = false;  // found by the name without the port, for a host off port 22
  std::string file;
  int line = 0;
};

// The name under which known_hosts files carry a host: the alias, "host", or "[host]:port" off port 22.
std::string known_hosts_name(const SshHostConfig& config);

// Entries of `text` that match `name`: plain, patterns, negated, hashed.
std::vector<KnownHost> find_known_hosts(std::string_view text, const std::string& file, const std::string& name);
// The same over all files of the host; a missing file has no entries. Off port 22 those of the name without the port
// too.
std::vector<KnownHost> load_known_hosts(const SshHostConfig& config);

enum class HostKeyVerdict : std::uint8_t { kKnown, kUnknown, kChanged, kRevoked };
struct HostKeyCheck {
  HostKeyVerdict verdict = HostKeyVerdict::kUnknown;
  KnownHost offending;  // for kChanged and kRevoked
};
// Portless entries are asked only where the others do not decide, and then only a key that is the same counts: behind
// another port there may be another machine.
HostKeyCheck check_host_key(const std::vector<KnownHost>& known, const HostKey& key);

// The certificate authority that answers for the host; nullptr: none.
const KnownHost* find_authority(const std::vector<KnownHost>& known);

// Host-key algorithms to ask for, the best first, of those that the user wants (empty: of all that libssh2 may know):
// none for certificates, and where the host is known only those of its known types, so that a host with several keys
// shows one of these. Empty: there is none.
std::string host_key_algorithms(const std::string& wanted, const std::vector<KnownHost>& known);

// Bits of an RSA key; 0: the key is of another type, or malformed.
int rsa_bits(const HostKey& key);

// One known_hosts line, with newline. `salt`: 20 random bytes to hash the name with, empty for a plain name.
std::string known_hosts_line(const std::string& name, const HostKey& key, std::string_view salt);
// Appends the key to the first user file, as ssh with accept-new does.
Result<void> remember_host_key(const SshHostConfig& config, const HostKey& key);

}  // namespace hvd::launch

// These functions say whether the key that a server shows is the one that known_hosts has for this host.
//
// They read OpenSSH's format themselves: libssh2 knows no wildcards and no @revoked, and does not say in which line an
// entry stands. A changed key must be reported as file:line. Value types. Two functions read or write files, and their
// comments say so.
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

// Returns the type that every key blob begins with; it is empty when the blob is malformed.
std::string key_type_of_blob(std::string_view blob);
// Returns "SHA256:..." as OpenSSH prints it.
std::string fingerprint(std::string_view blob);

// KnownAs is what the mark before an entry makes of its key.
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

// Returns the name that known_hosts files use for a host: the alias, "host", or "[host]:port" for a port other than 22.
std::string known_hosts_name(const SshHostConfig& config);

// Returns the entries of `text` that match `name`: plain, patterns, negated, hashed.
std::vector<KnownHost> find_known_hosts(std::string_view text, const std::string& file, const std::string& name);
// Returns the same from all files of the host; a missing file has no entries. For a port other than 22 the entries of
// the name without a port are included.
std::vector<KnownHost> load_known_hosts(const SshHostConfig& config);

enum class HostKeyVerdict : std::uint8_t { kKnown, kUnknown, kChanged, kRevoked };
struct HostKeyCheck {
  HostKeyVerdict verdict = HostKeyVerdict::kUnknown;
  KnownHost offending;  // for kChanged and kRevoked
};
// Entries without a port are used only where the others do not decide, and then only an equal key counts: another
// machine may listen on the other port.
HostKeyCheck check_host_key(const std::vector<KnownHost>& known, const HostKey& key);

// Returns the certificate authority that vouches for the host, or nullptr.
const KnownHost* find_authority(const std::vector<KnownHost>& known);

// Returns the host-key algorithms to ask for, the best first, from those that the user wants (empty: all that libssh2
// may know). None of them is for certificates. A known host is asked only for its known types, so that a host with
// several keys shows one of these. The result may be empty.
std::string host_key_algorithms(const std::string& wanted, const std::vector<KnownHost>& known);

// Returns the bits of an RSA key, or 0 for another type or a malformed key.
int rsa_bits(const HostKey& key);

// Returns one known_hosts line, with newline. `salt` is 20 random bytes to hash the name with; empty: a plain name.
std::string known_hosts_line(const std::string& name, const HostKey& key, std::string_view salt);
// Appends the key to the first user file, as ssh does with accept-new.
Result<void> remember_host_key(const SshHostConfig& config, const HostKey& key);

}  // namespace hvd::launch

#include "launcher/ssh/known_hosts.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <optional>

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include "launcher/ssh/base64.h"
#include "launcher/ssh/ssh_wire.h"
#include "runtime/base/fd.h"
#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

constexpr std::size_t kSaltBytes = 20;  // OpenSSH: one SHA-1
// These stand in ssh's order. RSA is last: old libssh2 can only check its SHA-1 signature, which new servers do not
// make.
constexpr std::string_view kHostKeyAlgorithms =
    "ssh-ed25519,ecdsa-sha2-nistp256,ecdsa-sha2-nistp384,ecdsa-sha2-nistp521,rsa-sha2-512,rsa-sha2-256,ssh-rsa";

std::string hmac_sha1(std::string_view key, std::string_view text) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> out{};
  unsigned int size = 0;
  HMAC(EVP_sha1(), key.data(), static_cast<int>(key.size()), reinterpret_cast<const unsigned char*>(text.data()),
       text.size(), out.data(), &size);
  return {reinterpret_cast<const char*>(out.data()), size};
}

std::string_view next_word(std::string_view& line) {
  const auto start = line.find_first_not_of(" \t");
  if (start == std::string_view::npos) {
    line = {};
    return {};
  }
  line.remove_prefix(start);
  const auto end = std::min(line.find_first_of(" \t"), line.size());
  const std::string_view word = line.substr(0, end);
  line.remove_prefix(end);
  return word;
}

// Matches '*' and '?' as OpenSSH's patterns do. It is iterative, so that a hostile pattern costs at most pattern x
// name.
bool matches_pattern(std::string_view pattern, std::string_view name) {
  std::size_t p = 0;
  std::size_t n = 0;
  std::size_t star = std::string_view::npos;
  std::size_t resume = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') {
    ++p;
  }
  return p == pattern.size();
}

bool matches_hashed(std::string_view field, const std::string& name) {
  field.remove_prefix(3);  // "|1|"
  const auto bar = field.find('|');
  if (bar == std::string_view::npos) {
    return false;
  }
  const std::optional<std::string> salt = base64_decode(field.substr(0, bar));
  const std::optional<std::string> hash = base64_decode(field.substr(bar + 1));
  return salt && hash && hmac_sha1(*salt, name) == *hash;
}

bool matches_hosts(std::string_view hosts, const std::string& name) {
  if (hosts.starts_with("|1|")) {
    return matches_hashed(hosts, name);
  }
  bool matched = false;
  std::string_view rest = hosts;
  while (!rest.empty()) {
    std::string_view pattern = take_until(rest, ',');
    const bool is_negated = pattern.starts_with('!');
    if (is_negated) {
      pattern.remove_prefix(1);
    }
    if (matches_pattern(lowered(std::string(pattern)), lowered(std::string(name)))) {
      if (is_negated) {
        return false;
      }
      matched = true;
    }
  }
  return matched;
}

std::optional<KnownHost> parse_line(std::string_view line, const std::string& name) {
  std::string_view word = next_word(line);
  if (word.empty() || word.starts_with('#')) {
    return std::nullopt;
  }
  KnownHost entry;
  if (word.starts_with('@')) {
    if (word != "@revoked" && word != "@cert-authority") {
      return std::nullopt;
    }
    entry.as = word == "@revoked" ? KnownAs::kRevoked : KnownAs::kAuthority;
    word = next_word(line);
  }
  if (!matches_hosts(word, name)) {
    return std::nullopt;
  }
  entry.key.type = next_word(line);
  const std::optional<std::string> blob = base64_decode(next_word(line));
  if (!blob || entry.key.type.empty() || key_type_of_blob(*blob) != entry.key.type) {
    return std::nullopt;
  }
  entry.key.blob = *blob;
  return entry;
}

HostKeyCheck check_among(const std::vector<KnownHost>& known, bool is_portless, const HostKey& key) {
  HostKeyCheck check;
  for (const KnownHost& entry : known) {
    const bool is_same = entry.key.blob == key.blob;
    if (entry.is_portless != is_portless || entry.as == KnownAs::kAuthority) {
      continue;
    }
    if (entry.as == KnownAs::kRevoked) {
      if (is_same) {
        return {HostKeyVerdict::kRevoked, entry};
      }
    } else if (is_same) {
      check = {HostKeyVerdict::kKnown, {}};
    } else if (check.verdict == HostKeyVerdict::kUnknown && entry.key.type == key.type) {
      check = {HostKeyVerdict::kChanged, entry};
    }
  }
  return check;
}

// Returns the types of the keys by which a host is known. Entries without the port count only where none has the port.
std::vector<std::string> known_types(const std::vector<KnownHost>& known) {
  std::vector<std::string> types;
  std::vector<std::string> portless;
  for (const KnownHost& entry : known) {
    if (entry.as == KnownAs::kHost) {
      (entry.is_portless ? portless : types).push_back(entry.key.type);
    }
  }
  return types.empty() ? portless : types;
}

}  // namespace

std::string key_type_of_blob(std::string_view blob) {
  return std::string(WireReader(blob).text());
}

std::string fingerprint(std::string_view blob) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  EVP_Digest(blob.data(), blob.size(), digest.data(), &size, EVP_sha256(), nullptr);
  std::string text = base64_encode({reinterpret_cast<const char*>(digest.data()), size});
  text.erase(text.find_last_not_of('=') + 1);
  return "SHA256:" + text;
}

std::string known_hosts_name(const SshHostConfig& config) {
  if (!config.host_key_alias.empty()) {
    return config.host_key_alias;
  }
  const std::string host = lowered(config.hostname);
  return config.port == 22 ? host : "[" + host + "]:" + std::to_string(config.port);
}

std::vector<KnownHost> find_known_hosts(std::string_view text, const std::string& file, const std::string& name) {
  std::vector<KnownHost> found;
  for (int number = 1; !text.empty(); ++number) {
    const auto end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.ends_with('\r')) {
      line.remove_suffix(1);
    }
    std::optional<KnownHost> entry = parse_line(line, name);
    if (entry) {
      entry->file = file;
      entry->line = number;
      found.push_back(std::move(*entry));
    }
  }
  return found;
}

std::vector<KnownHost> load_known_hosts(const SshHostConfig& config) {
  std::vector<KnownHost> known;
  const std::string name = known_hosts_name(config);
  const std::string portless = config.host_key_alias.empty() && config.port != 22 ? lowered(config.hostname) : "";
  for (const auto* files : {&config.user_known_hosts, &config.global_known_hosts}) {
    for (const std::string& file : *files) {
      const std::string text = text_of_file(file);
      for (KnownHost& entry : find_known_hosts(text, file, name)) {
        known.push_back(std::move(entry));
      }
      for (KnownHost& entry : portless.empty() ? std::vector<KnownHost>() : find_known_hosts(text, file, portless)) {
        entry.is_portless = true;
        known.push_back(std::move(entry));
      }
    }
  }
  return known;
}

HostKeyCheck check_host_key(const std::vector<KnownHost>& known, const HostKey& key) {
  const HostKeyCheck check = check_among(known, false, key);
  if (check.verdict != HostKeyVerdict::kUnknown) {
    return check;
  }
  const HostKeyCheck portless = check_among(known, true, key);
  return portless.verdict == HostKeyVerdict::kChanged ? check : portless;
}

const KnownHost* find_authority(const std::vector<KnownHost>& known) {
  const auto found =
      std::find_if(known.begin(), known.end(), [](const KnownHost& entry) { return entry.as == KnownAs::kAuthority; });
  return found == known.end() ? nullptr : &*found;
}

std::string host_key_algorithms(const std::string& wanted, const std::vector<KnownHost>& known) {
  const std::vector<std::string> types = known_types(known);
  const auto is_usable = [&types](std::string_view algorithm) {
    // Algorithms that differ only in their hash share one type of key. libssh2 leaves out a type that it does not know.
    const std::string_view type = algorithm.starts_with("rsa-sha2-") ? "ssh-rsa" : algorithm;
    if (type.find("-cert-") != std::string_view::npos) {
      return false;  // libssh2 takes some for plain keys, and checks nothing of them
    }
    return types.empty() || std::find(types.begin(), types.end(), type) != types.end();
  };
  std::string list;
  std::string_view rest = wanted.empty() ? kHostKeyAlgorithms : std::string_view(wanted);
  while (!rest.empty()) {
    if (const std::string_view algorithm = take_until(rest, ','); is_usable(algorithm)) {
      add_to_list(list, algorithm, ",");
    }
  }
  return list;
}

int rsa_bits(const HostKey& key) {
  WireReader in(key.blob);
  const std::string_view type = in.text();
  in.text();  // the exponent
  std::string_view modulus = in.text();
  modulus.remove_prefix(std::min(modulus.find_first_not_of('\0'), modulus.size()));
  if (type != "ssh-rsa" || !in.ok() || modulus.empty()) {
    return 0;
  }
  const auto of_first = std::bit_width(static_cast<unsigned char>(modulus.front()));
  return static_cast<int>((modulus.size() - 1) * 8) + static_cast<int>(of_first);
}

std::string known_hosts_line(const std::string& name, const HostKey& key, std::string_view salt) {
  const std::string host =
      salt.empty() ? name : "|1|" + base64_encode(salt) + "|" + base64_encode(hmac_sha1(salt, name));
  return host + " " + key.type + " " + base64_encode(key.blob) + "\n";
}

Result<void> remember_host_key(const SshHostConfig& config, const HostKey& key) {
  if (config.user_known_hosts.empty()) {
    return {};  // UserKnownHostsFile none
  }
  const std::string& file = config.user_known_hosts.front();
  if (const auto slash = file.rfind('/'); slash != std::string::npos && slash > 0) {
    ::mkdir(file.substr(0, slash).c_str(), 0700);  // a missing ~/.ssh; any failure shows at open
  }
  const Fd fd(::open(file.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0600));
  if (!fd.is_open()) {
    return Error::from_errno("cannot remember the host key in " + file);
  }
  std::string line;
  const off_t size = ::lseek(fd.get(), 0, SEEK_END);
  char last = '\n';
  if (size > 0 && ::pread(fd.get(), &last, 1, size - 1) == 1 && last != '\n') {
    line = "\n";  // an editor left the last entry open
  }
  std::string salt;
  if (config.hash_known_hosts) {
    salt.resize(kSaltBytes);
    if (RAND_bytes(reinterpret_cast<unsigned char*>(salt.data()), static_cast<int>(salt.size())) != 1) {
      return Error(Code::kSystem, "no random bytes for known_hosts");
    }
  }
  line += known_hosts_line(known_hosts_name(config), key, salt);
  if (!write_all(fd.get(), line)) {
    Error why = Error::from_errno("cannot remember the host key in " + file);
    // A part of a key would be another key the next time, and the host one whose key has changed.
    if (size >= 0 && ::lseek(fd.get(), 0, SEEK_END) < size + static_cast<off_t>(line.size())) {
      [[maybe_unused]] const int cut = ::ftruncate(fd.get(), size);
    }
    return why;
  }
  return {};
}

}  // namespace hvd::launch

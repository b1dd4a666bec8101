#include "launcher/transport/ssh_config.h"

#include <pwd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <optional>

#include "launcher/process/spawn.h"

namespace hvd::launch {
namespace {

constexpr const char* kDefaultKeys[] = {"id_rsa", "id_ecdsa", "id_ed25519"};

std::vector<std::string> split_words(std::string_view text) {
  std::vector<std::string> words;
  while (!text.empty()) {
    const auto end = text.find(' ');
    if (end != 0) {
      words.emplace_back(text.substr(0, end));
    }
    if (end == std::string_view::npos) {
      break;
    }
    text.remove_prefix(end + 1);
  }
  return words;
}

Result<int> parse_number(std::string_view key, std::string_view text) {
  int value = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failed != std::errc() || end != text.data() + text.size()) {
    return Error(Code::kProtocol,
                 "'ssh -G' printed '" + std::string(key) + " " + std::string(text) + "', expected a number");
  }
  return value;
}

// These are the values of %-tokens in file names.
struct Tokens {
  const LocalUser& local;
  const SshRequest& request;
  const SshHostConfig& config;
};

// Returns nothing for a token that only ssh can expand.
std::optional<std::string> token_value(char token, const Tokens& t) {
  switch (token) {
    case '%':
      return "%";
    case 'd':
      return t.local.home;
    case 'h':
      return t.config.hostname;
    case 'n':
      return t.request.host;
    case 'p':
      return std::to_string(t.config.port);
    case 'r':
      return t.config.user;
    case 'u':
      return t.local.name;
    default:
      return std::nullopt;
  }
}

// Takes "${NAME}" off the beginning of the text, and returns its value.
std::optional<std::string> take_variable(std::string_view& text, const Tokens& t) {
  const auto end = text.find('}');
  if (end == std::string_view::npos) {
    return std::nullopt;
  }
  const std::string value = value_in(t.local.environment, std::string(text.substr(2, end - 2)));
  text.remove_prefix(end + 1);
  return value.empty() ? std::nullopt : std::optional<std::string>(value);
}

// `ssh -G` prints the files of keys and certificates as they were written: with ~, ${NAME} and %-tokens. Returns
// nothing for a text that only ssh itself can expand (%C, ~ada/, a variable that is not set, which ssh reports).
std::optional<std::string> expand_path(std::string_view text, const Tokens& t) {
  std::string path;
  if (text.starts_with("~/")) {
    path = t.local.home;
    text.remove_prefix(1);
  } else if (text.starts_with("~")) {
    return std::nullopt;
  }
  while (!text.empty()) {
    std::optional<std::string> part(text.substr(0, 1));
    if (text.starts_with("${")) {
      part = take_variable(text, t);
    } else if (text.front() == '%' && text.size() > 1) {
      part = token_value(text[1], t);
      text.remove_prefix(2);
    } else {
      text.remove_prefix(1);
    }
    if (!part) {
      return std::nullopt;
    }
    path += *part;
  }
  return path;
}

// Expands the `paths` that `word` names. `needs_ssh` becomes the first one that only ssh can expand.
std::vector<std::string> expand_all(const char* word, const std::vector<std::string>& paths, const Tokens& t,
                                    std::string& needs_ssh) {
  std::vector<std::string> expanded;
  for (const std::string& path : paths) {
    if (path == "none") {
      continue;
    }
    if (auto whole = expand_path(path, t)) {
      expanded.push_back(std::move(*whole));
    } else if (needs_ssh.empty()) {
      needs_ssh = std::string(word) + " " + path;
    }
  }
  return expanded;
}

HostKeyPolicy policy_of(std::string_view word) {
  if (word == "accept-new") {
    return HostKeyPolicy::kAcceptNew;
  }
  const bool is_off = word == "no" || word == "off" || word == "false";
  return is_off ? HostKeyPolicy::kOff : HostKeyPolicy::kStrict;
}

bool is_yes(std::string_view word) {
  return word == "yes" || word == "true";
}

int family_of(std::string_view word) {
  if (word == "inet") {
    return AF_INET;
  }
  return word == "inet6" ? AF_INET6 : AF_UNSPEC;
}

bool is_no(std::string_view word) {
  return word == "no" || word == "false";
}

bool is_any(std::string_view /*word*/) {
  return true;
}

// Reads words that only the user's own ssh can heed, with the values that ask for it.
void take_need_of_ssh(SshHostConfig& config, std::string_view key, std::string_view value) {
  struct Need {
    std::string_view key;
    std::string_view shown;
    bool (*is_asked)(std::string_view value);
  };
  constexpr Need kNeedSsh[] = {{"proxyjump", "ProxyJump", is_any},
                               {"proxycommand", "ProxyCommand", is_any},
                               {"knownhostscommand", "KnownHostsCommand", is_any},
                               {"revokedhostkeys", "RevokedHostKeys", is_any},
                               {"verifyhostkeydns", "VerifyHostKeyDNS", is_yes},
                               {"pubkeyauthentication", "PubkeyAuthentication", is_no},
                               {"bindaddress", "BindAddress", is_any},
                               {"bindinterface", "BindInterface", is_any}};
  for (const Need& need : kNeedSsh) {
    if (key == need.key && need.is_asked(value)) {
      config.needs_ssh = std::string(need.shown) + " " + std::string(value);
    }
  }
}

void take_algorithms(SshAlgorithms& algorithms, std::string_view key, std::string_view value) {
  if (key == "kexalgorithms") {
    algorithms.key_exchange = value;
  } else if (key == "hostkeyalgorithms") {
    algorithms.host_keys = value;
  } else if (key == "ciphers") {
    algorithms.ciphers = value;
  } else if (key == "macs") {
    algorithms.macs = value;
  }
}

// Reads words that ask for something that libssh2 cannot do.
void take_beyond_us(SshHostConfig& config, std::string_view key, std::string_view value) {
  if (value == "none") {
    return;
  }
  take_need_of_ssh(config, key, value);
  if (key == "controlpath") {
    config.control_path = value;
  } else if (key == "certificatefile") {
    config.certificate_files.emplace_back(value);
  } else if (key == "pkcs11provider") {
    config.has_pkcs11 = true;
  } else if (key == "remotecommand") {
    config.has_remote_command = true;
  } else if (key == "gssapiauthentication") {
    config.tries_gssapi = is_yes(value);
  } else if (key == "hostbasedauthentication") {
    config.tries_hostbased = is_yes(value);
  }
}

// Reads words whose value is one text or a list of words.
void take_text(SshHostConfig& config, std::string_view key, std::string_view value) {
  if (key == "hostname") {
    config.hostname = value;
  } else if (key == "user") {
    config.user = value;
  } else if (key == "identityfile") {
    config.identity_files.emplace_back(value);
  } else if (key == "identitiesonly") {
    config.identities_only = is_yes(value);
  } else if (key == "identityagent") {
    config.identity_agent = value == "SSH_AUTH_SOCK" ? "" : value;
  } else if (key == "userknownhostsfile") {
    config.user_known_hosts = split_words(value);
  } else if (key == "globalknownhostsfile") {
    config.global_known_hosts = split_words(value);
  } else if (key == "stricthostkeychecking") {
    config.host_key_policy = policy_of(value);
  } else if (key == "hostkeyalias") {
    config.host_key_alias = value;
  } else if (key == "hashknownhosts") {
    config.hash_known_hosts = is_yes(value);
  } else if (key == "nohostauthenticationforlocalhost") {
    config.trusts_loopback = is_yes(value);
  } else if (key == "addressfamily") {
    config.address_family = family_of(value);
  } else {
    take_beyond_us(config, key, value);
  }
}

Result<void> take_line(SshHostConfig& config, std::string_view key, std::string_view value) {
  if (key == "port") {
    HVD_TRY_ASSIGN(config.port, parse_number(key, value));
    if (config.port < 1 || config.port > 65535) {
      return Error(Code::kProtocol, "'ssh -G' printed port " + std::string(value) + ", which is no port");
    }
  } else if (key == "connecttimeout" && value != "none") {
    HVD_TRY_ASSIGN(const int seconds, parse_number(key, value));
    config.connect_timeout = std::chrono::seconds(seconds > 0 ? seconds : 0);
  } else if (key == "connectionattempts") {
    HVD_TRY_ASSIGN(config.connection_attempts, parse_number(key, value));
  } else if (key == "requiredrsasize") {
    HVD_TRY_ASSIGN(config.required_rsa_bits, parse_number(key, value));
  } else {
    take_algorithms(config.algorithms, key, value);
    take_text(config, key, value);
  }
  return {};
}

}  // namespace

LocalUser LocalUser::current(std::vector<std::string> environment) {
  LocalUser local;
  local.environment = std::move(environment);
  std::array<char, 4096> buffer{};
  passwd entry{};
  passwd* found = nullptr;
  if (::getpwuid_r(::getuid(), &entry, buffer.data(), buffer.size(), &found) == 0 && found != nullptr) {
    local.name = found->pw_name;
    local.home = found->pw_dir;
  }
  return local;
}

Result<void> check_ssh_request(const SshRequest& request) {
  const auto is_bad = [](unsigned char c) { return c <= ' ' || c == 0x7f; };
  for (const std::string* name : {&request.host, &request.user}) {
    bool refused = name->starts_with('-');
    for (const char c : *name) {
      refused = refused || is_bad(static_cast<unsigned char>(c));
    }
    if (refused) {
      return Error(Code::kInvalid, "'" + *name + "' is not a host or user name; check the host list");
    }
  }
  if (request.host.empty()) {
    return Error(Code::kInvalid, "the host name is empty; check the host list");
  }
  return {};
}

std::vector<std::string> ssh_config_argv(const SshRequest& request) {
  std::vector<std::string> argv = ssh_target_words(request);
  argv.insert(argv.begin(), {"ssh", "-G"});
  return argv;
}

std::vector<std::string> ssh_target_words(const SshRequest& request) {
  std::vector<std::string> argv;
  const auto add = [&argv](const char* flag, const std::string& value) {
    if (!value.empty()) {
      argv.emplace_back(flag);
      argv.push_back(value);
    }
  };
  add("-F", request.config_file);
  add("-p", request.port != 0 ? std::to_string(request.port) : "");
  add("-l", request.user);
  add("-i", request.identity_file);
  argv.emplace_back("--");
  argv.push_back(request.host);
  return argv;
}

SshHostConfig default_ssh_config(const SshRequest& request, const LocalUser& local) {
  SshHostConfig config;
  config.hostname = request.host;
  config.port = request.port != 0 ? request.port : 22;
  config.user = request.user.empty() ? local.name : request.user;
  if (!request.identity_file.empty()) {
    config.identity_files.push_back(request.identity_file);
  }
  const std::string dir = local.home + "/.ssh/";
  for (const char* name : kDefaultKeys) {
    config.identity_files.push_back(dir + name);
  }
  config.identity_agent = value_in(local.environment, "SSH_AUTH_SOCK");
  config.user_known_hosts = {dir + "known_hosts", dir + "known_hosts2"};
  config.global_known_hosts = {"/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2"};
  return config;
}

Result<SshHostConfig> parse_ssh_config(std::string_view output, const SshRequest& request, const LocalUser& local) {
  SshHostConfig config;
  while (!output.empty()) {
    const auto end = output.find('\n');
    const std::string_view line = output.substr(0, end);
    output.remove_prefix(end == std::string_view::npos ? output.size() : end + 1);
    const auto space = line.find(' ');
    if (space != std::string_view::npos) {
      HVD_TRY(take_line(config, line.substr(0, space), line.substr(space + 1)));
    }
  }
  if (config.hostname.empty() || config.user.empty()) {
    return Error(Code::kProtocol, "'ssh -G' printed no hostname or no user; is `ssh` on the PATH OpenSSH's?");
  }
  const SshHostConfig written = config;
  const Tokens tokens{local, request, written};
  std::string& needs = config.needs_ssh;
  config.identity_files = expand_all("IdentityFile", written.identity_files, tokens, needs);
  config.certificate_files = expand_all("CertificateFile", written.certificate_files, tokens, needs);
  config.user_known_hosts = expand_all("UserKnownHostsFile", written.user_known_hosts, tokens, needs);
  config.global_known_hosts = expand_all("GlobalKnownHostsFile", written.global_known_hosts, tokens, needs);
  if (written.identity_agent.starts_with('$') && !written.identity_agent.starts_with("${")) {
    // This older form names a variable that has the path. Where it is not set, ssh asks no agent.
    config.identity_agent = value_in(local.environment, written.identity_agent.substr(1));
  } else if (written.identity_agent != "" && written.identity_agent != "none") {
    const auto agents = expand_all("IdentityAgent", {written.identity_agent}, tokens, needs);
    config.identity_agent = agents.empty() ? "" : agents.front();
  } else if (written.identity_agent.empty()) {
    config.identity_agent = value_in(local.environment, "SSH_AUTH_SOCK");
  }
  return config;
}

}  // namespace hvd::launch

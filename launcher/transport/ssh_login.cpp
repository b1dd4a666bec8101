#include "launcher/transport/ssh_login.h"

#include <unistd.h>

#include <algorithm>

#include <libssh2.h>

namespace hvd::launch {
namespace {

// libssh2 1.11 learned the SHA-2 signatures for RSA keys.
bool signs_rsa_with_sha2() {
  return libssh2_version(0x010b00) != nullptr;
}

bool is_usable_type(const std::string& type) {
  return type == "ssh-ed25519" || type == "ssh-rsa" || type == "pem" || type.starts_with("ecdsa-sha2-nistp");
}

std::string join(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    text += (text.empty() ? "" : ", ") + word;
  }
  return text;
}

// As ssh finds them: those of CertificateFile, and KEY-cert.pub beside each key.
std::string first_certificate(const SshHostConfig& config) {
  std::vector<std::string> paths = config.certificate_files;
  for (const std::string& key : config.identity_files) {
    paths.push_back(key + "-cert.pub");
  }
  const auto found = std::find_if(paths.begin(), paths.end(),
                                  [](const std::string& path) { return ::access(path.c_str(), R_OK) == 0; });
  return found == paths.end() ? "" : *found;
}

template <typename Candidates>
void put_rsa_last(Candidates begin, Candidates end) {
  std::stable_partition(begin, end, [](const auto& candidate) { return !candidate.file.is_rsa(); });
}

}  // namespace

struct SshLogin::AgentKeys {
  explicit AgentKeys(LIBSSH2_SESSION* session) : handle(libssh2_agent_init(session)) {}
  ~AgentKeys() {
    if (handle != nullptr) {
      libssh2_agent_disconnect(handle);
      libssh2_agent_free(handle);
    }
  }
  AgentKeys(const AgentKeys&) = delete;
  AgentKeys& operator=(const AgentKeys&) = delete;

  LIBSSH2_AGENT* handle;
};

SshLogin::SshLogin(SshSession& session, const SshHostConfig& config) : session_(session), config_(config) {}

// A login given up in the middle ends here, while the keys that it uses still exist.
SshLogin::~SshLogin() {
  session_.abandon_step();
}

Result<Step> SshLogin::advance() {
  if (methods_.empty()) {
    HVD_TRY_ASSIGN(const Step asked, ask_methods());
    if (asked == Step::kAgain || libssh2_userauth_authenticated(session_.raw()) != 0) {
      return asked;
    }
    collect();
  }
  return try_keys();
}

Result<Step> SshLogin::ask_methods() {
  LIBSSH2_SESSION* raw = session_.raw();
  const auto call = [raw, user = config_.user] {
    const char* list = libssh2_userauth_list(raw, user.data(), static_cast<unsigned int>(user.size()));
    return std::string(list != nullptr ? list : "");
  };
  methods_ = call();
  if (!methods_.empty() || libssh2_userauth_authenticated(raw) != 0) {
    session_.set_unfinished(nullptr);
    return Step::kDone;
  }
  if (libssh2_session_last_errno(raw) == LIBSSH2_ERROR_EAGAIN) {
    session_.set_unfinished(
        [raw, call] { return !call().empty() || libssh2_session_last_errno(raw) != LIBSSH2_ERROR_EAGAIN; });
    return Step::kAgain;
  }
  session_.set_unfinished(nullptr);
  return session_.last_error("asking for the ways to log in");
}

void SshLogin::collect() {
  std::vector<KeyFile> files;
  for (const std::string& path : config_.identity_files) {
    auto file = read_key_file(path);
    if (file.ok()) {
      files.push_back(std::move(file).value());
    } else if (file.error().code() != Code::kNotFound) {
      skipped_.push_back(path + " (" + file.error().message() + ")");
    }
  }
  if (config_.identity_agent != "none") {
    collect_agent(files);
  }
  const std::size_t agent_count = candidates_.size();
  for (KeyFile& file : files) {
    const bool is_in_agent = std::any_of(candidates_.begin(), candidates_.end(), [&file](const Candidate& c) {
      return !file.public_blob.empty() && c.file.public_blob == file.public_blob;
    });
    if (is_in_agent) {
      continue;
    }
    if (file.is_encrypted) {
      skipped_.push_back(file.path + " (has a passphrase; try: ssh-add " + file.path + ")");
    } else if (!is_usable_type(file.type)) {
      skip_unusable(file);
    } else {
      candidates_.push_back({std::move(file), nullptr});
    }
  }
  const auto first_file = candidates_.begin() + static_cast<std::ptrdiff_t>(agent_count);
  put_rsa_last(candidates_.begin(), first_file);
  put_rsa_last(first_file, candidates_.end());
}

void SshLogin::collect_agent(const std::vector<KeyFile>& files) {
  agent_ = std::make_unique<AgentKeys>(session_.raw());
  if (agent_->handle == nullptr) {
    return;
  }
  if (!config_.identity_agent.empty()) {
    libssh2_agent_set_identity_path(agent_->handle, config_.identity_agent.c_str());
  }
  if (libssh2_agent_connect(agent_->handle) != 0) {
    // No agent at all is the usual case for jobs from cron; one that was asked for by name is worth a word.
    if (!config_.identity_agent.empty()) {
      skipped_.push_back("ssh-agent at " + config_.identity_agent + " (does not answer)");
    }
    return;
  }
  if (libssh2_agent_list_identities(agent_->handle) != 0) {
    skipped_.emplace_back("ssh-agent (does not list its keys)");
    return;
  }
  std::vector<Candidate> others;
  libssh2_agent_publickey* identity = nullptr;
  while (libssh2_agent_get_identity(agent_->handle, &identity, identity) == 0) {
    Candidate candidate;
    candidate.agent_identity = identity;
    candidate.file.path = std::string("ssh-agent key ") + (identity->comment != nullptr ? identity->comment : "");
    candidate.file.public_blob.assign(reinterpret_cast<const char*>(identity->blob), identity->blob_len);
    candidate.file.type = key_type_of_blob(candidate.file.public_blob);
    const bool is_named = std::any_of(files.begin(), files.end(), [&candidate](const KeyFile& file) {
      return file.public_blob == candidate.file.public_blob;
    });
    if (!is_usable_type(candidate.file.type)) {
      skip_unusable(candidate.file);
    } else if (is_named) {
      candidates_.push_back(std::move(candidate));
    } else if (!config_.identities_only) {
      others.push_back(std::move(candidate));
    }
  }
  std::move(others.begin(), others.end(), std::back_inserter(candidates_));
}

void SshLogin::skip_unusable(const KeyFile& key) {
  skipped_.push_back(key.path + " (" + libssh2_version_text() + " cannot use " + key.type + " keys)");
  unusable_type_ = key.type;
}

int SshLogin::try_candidate(const Candidate& candidate) {
  if (candidate.agent_identity != nullptr) {
    return libssh2_agent_userauth(agent_->handle, config_.user.c_str(),
                                  static_cast<libssh2_agent_publickey*>(candidate.agent_identity));
  }
  const KeyFile& file = candidate.file;
  return libssh2_userauth_publickey_frommemory(session_.raw(), config_.user.data(), config_.user.size(), nullptr, 0,
                                               file.text.data(), file.text.size(), nullptr);
}

Result<Step> SshLogin::try_keys() {
  while (at_ < candidates_.size() && methods_.find("publickey") != std::string::npos) {
    const Candidate& candidate = candidates_[at_];
    const int rc = try_candidate(candidate);
    if (rc == LIBSSH2_ERROR_EAGAIN) {
      session_.set_unfinished([this, &candidate] { return try_candidate(candidate) != LIBSSH2_ERROR_EAGAIN; });
      return Step::kAgain;
    }
    session_.set_unfinished(nullptr);
    if (rc == 0) {
      return Step::kDone;
    }
    tried_.push_back(candidate.file.path + " (" + (candidate.file.type == "pem" ? "PEM" : candidate.file.type) + ")");
    tried_rsa_ = tried_rsa_ || candidate.file.is_rsa();
    was_cut_off_ = rc == LIBSSH2_ERROR_SOCKET_DISCONNECT || rc == LIBSSH2_ERROR_SOCKET_SEND || session_.is_peer_gone();
    if (was_cut_off_) {
      break;
    }
    ++at_;
  }
  return refusal();
}

std::string SshLogin::beyond_us() const {
  const auto accepts = [this](const char* method) { return methods_.find(method) != std::string::npos; };
  if (accepts("publickey")) {
    if (tried_rsa_ && !signs_rsa_with_sha2()) {
      return libssh2_version_text() + " signs RSA keys with SHA-1 only, which servers refuse today";
    }
    if (!unusable_type_.empty()) {
      return libssh2_version_text() + " cannot use " + unusable_type_ + " keys";
    }
    if (const std::string certificate = first_certificate(config_); !certificate.empty()) {
      return libssh2_version_text() + " cannot show the certificate " + certificate;
    }
    if (config_.has_pkcs11) {
      return libssh2_version_text() + " cannot use keys of a PKCS11Provider";
    }
  }
  if (config_.tries_gssapi && accepts("gssapi")) {
    return "the server accepts GSSAPI, which " + libssh2_version_text() + " cannot do";
  }
  if (config_.tries_hostbased && accepts("hostbased")) {
    return "the server accepts HostbasedAuthentication, which hvdrun cannot do";
  }
  return "";
}

Error SshLogin::refusal() const {
  std::string text = "permission denied for user " + config_.user + " (the server accepts: " + methods_ + ")";
  if (methods_.find("publickey") == std::string::npos) {
    return Error(Code::kAuth, text + "; hvdrun logs in with public keys only; put one there with ssh-copy-id");
  }
  text += tried_.empty() ? "; no usable key was found" : "; tried " + join(tried_);
  if (was_cut_off_) {
    text +=
        "; then the server closed the connection (too many attempts? name one key with IdentityFile and "
        "IdentitiesOnly)";
  }
  if (!skipped_.empty()) {
    text += "; skipped " + join(skipped_);
  }
  if (tried_rsa_ && !signs_rsa_with_sha2()) {
    text += "; RSA keys: " + libssh2_version_text() +
            " signs them with SHA-1 only, which OpenSSH 8.8 and newer refuse; use an ed25519 key (ssh-keygen -t "
            "ed25519, then ssh-copy-id)";
  } else {
    text += "; try: ssh -o BatchMode=yes -l " + config_.user + " " + config_.hostname + " true";
  }
  return Error(Code::kAuth, text);
}

}  // namespace hvd::launch

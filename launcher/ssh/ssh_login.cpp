#include "launcher/ssh/ssh_login.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include <libssh2.h>

#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

constexpr std::string_view kLogInFirst =
    "log in by ssh first, with ControlMaster and ControlPath in ssh_config, and hvdrun uses that connection";

// Returns true since libssh2 1.11, which learned the SHA-2 signatures of RSA keys.
bool signs_rsa_with_sha2() {
  return libssh2_version(0x010b00) != nullptr;
}

// libssh2 cannot log in by a certificate; an agent lists one as a key of another type.
bool is_usable_type(const std::string& type) {
  const bool is_certificate = type.find("-cert-") != std::string::npos;
  return type == "ssh-ed25519" || type == "ssh-rsa" || type == "pem" ||
         (type.starts_with("ecdsa-sha2-nistp") && !is_certificate);
}

// Returns the certificate that ssh would find: one of CertificateFile, or KEY-cert.pub beside a key.
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

SshLogin::SshLogin(SshSession& session, const SshHostConfig& config, bool asks_agent)
    : session_(session), config_(config), asks_agent_(asks_agent) {}

// A login that is given up in the middle must end here, while the keys that it uses still exist.
SshLogin::~SshLogin() {
  is_given_up_ = true;  // the step would else go on as long as the agent does not answer
  session_.abandon_step();
}

Result<SshStep> SshLogin::advance() {
  if (methods_.empty()) {
    HVD_TRY_ASSIGN(const SshStep asked, ask_methods(methods_));
    if (asked == SshStep::kAgain || libssh2_userauth_authenticated(session_.raw()) != 0) {
      return asked;
    }
    find_agent();
    if (!is_listing_) {
      collect();
    }
  }
  if (is_listing_) {
    if (list_agent() == SshStep::kAgain) {
      return SshStep::kAgain;
    }
    collect();
  }
  return try_keys();
}

SshLogin::Waits SshLogin::waits() const {
  return agent_ != nullptr && agent_->is_asked() ? Waits{agent_->fd(), agent_->wanted_events()} : Waits{};
}

std::string SshLogin::signs_with() const {
  return waits().fd >= 0 && !is_listing_ && at_ < candidates_.size() ? candidates_[at_].file.path : "";
}

void SshLogin::give_up_listing() {
  skip_mute_agent();
  agent_.reset();
}

void SshLogin::skip_mute_agent() {
  skipped_.push_back("ssh-agent at " + config_.identity_agent + " (does not answer)");
}

void SshLogin::find_agent() {
  if (config_.identity_agent.empty() || config_.identity_agent == "none") {
    return;  // no agent at all is the usual case for jobs from cron
  }
  if (!asks_agent_) {
    return skip_mute_agent();
  }
  auto agent = KeyAgent::connect(config_.identity_agent);
  if (agent.ok()) {
    agent_ = std::move(agent).value();
    is_listing_ = true;
  } else {
    skipped_.push_back("ssh-agent at " + config_.identity_agent + " (" + agent.error().message() + ")");
  }
}

// Returns kDone also when the agent has no keys for us.
SshStep SshLogin::list_agent() {
  if (agent_ != nullptr) {
    const Result<SshStep> listed = agent_->list();
    if (listed.ok() && listed.value() == SshStep::kAgain) {
      return SshStep::kAgain;
    }
    if (!listed.ok()) {
      skipped_.push_back("ssh-agent at " + config_.identity_agent + " (" + listed.error().message() + ")");
      agent_.reset();
    }
  }
  is_listing_ = false;
  return SshStep::kDone;
}

Result<SshStep> SshLogin::ask_methods(std::string& methods) {
  LIBSSH2_SESSION* raw = session_.raw();
  const auto call = [raw, user = config_.user] {
    const char* list = libssh2_userauth_list(raw, user.data(), static_cast<unsigned int>(user.size()));
    return std::string(list != nullptr ? list : "");
  };
  methods = call();
  if (!methods.empty() || libssh2_userauth_authenticated(raw) != 0) {
    session_.set_unfinished(nullptr);
    return SshStep::kDone;
  }
  if (libssh2_session_last_errno(raw) == LIBSSH2_ERROR_EAGAIN) {
    session_.set_unfinished(
        [raw, call] { return !call().empty() || libssh2_session_last_errno(raw) != LIBSSH2_ERROR_EAGAIN; });
    return SshStep::kAgain;
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
  if (agent_ != nullptr) {
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
    if (file.is_public) {
      skipped_.push_back(file.path + " (only its public half is here, and ssh-agent has no such key)");
    } else if (file.is_encrypted) {
      skipped_.push_back(file.path + " (has a passphrase; try: ssh-add " + file.path + ")");
    } else if (!is_usable_type(file.type)) {
      skip_unusable(file);
    } else {
      candidates_.push_back({std::move(file), false});
    }
  }
  const auto first_file = candidates_.begin() + static_cast<std::ptrdiff_t>(agent_count);
  put_rsa_last(candidates_.begin(), first_file);
  put_rsa_last(first_file, candidates_.end());
}

void SshLogin::collect_agent(const std::vector<KeyFile>& files) {
  std::vector<Candidate> others;
  for (const KeyAgent::Key& key : agent_->keys()) {
    Candidate candidate;
    candidate.is_agents = true;
    candidate.file.path = "ssh-agent key " + key.comment;
    candidate.file.public_blob = key.blob;
    candidate.file.type = key_type_of_blob(key.blob);
    const bool is_named =
        std::any_of(files.begin(), files.end(), [&key](const KeyFile& file) { return file.public_blob == key.blob; });
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

// While this returns LIBSSH2_ERROR_EAGAIN, libssh2 asks again with the same data.
int SshLogin::sign(const unsigned char* data, std::size_t size, unsigned char** signature,
                   std::size_t* signature_size) {
  if (is_given_up_) {
    return -1;
  }
  const Candidate& candidate = candidates_[at_];
  const Result<SshStep> signed_now =
      agent_->sign(candidate.file.public_blob, std::string_view(reinterpret_cast<const char*>(data), size));
  if (!signed_now.ok()) {
    skipped_.push_back(candidate.file.path + " (" + signed_now.error().message() + ")");
    return -1;
  }
  if (signed_now.value() == SshStep::kAgain) {
    return LIBSSH2_ERROR_EAGAIN;
  }
  const std::string& made = agent_->signature();
  *signature = static_cast<unsigned char*>(std::malloc(made.size()));  // libssh2 frees it
  *signature_size = made.size();
  if (*signature == nullptr) {
    return -1;
  }
  made.copy(reinterpret_cast<char*>(*signature), made.size());
  return 0;
}

int SshLogin::try_candidate(const Candidate& candidate) {
  if (candidate.is_agents) {
    void* self = this;
    const std::string& blob = candidate.file.public_blob;
    return libssh2_userauth_publickey(
        session_.raw(), config_.user.c_str(), reinterpret_cast<const unsigned char*>(blob.data()), blob.size(),
        [](LIBSSH2_SESSION*, unsigned char** signature, std::size_t* signature_size, const unsigned char* data,
           std::size_t size,
           void** login) { return static_cast<SshLogin*>(*login)->sign(data, size, signature, signature_size); },
        &self);
  }
  const KeyFile& file = candidate.file;
  return libssh2_userauth_publickey_frommemory(session_.raw(), config_.user.data(), config_.user.size(), nullptr, 0,
                                               file.text.data(), file.text.size(), nullptr);
}

Result<SshStep> SshLogin::try_keys() {
  while (at_ < candidates_.size() && methods_.find("publickey") != std::string::npos) {
    const Candidate& candidate = candidates_[at_];
    const int rc = try_candidate(candidate);
    if (rc == LIBSSH2_ERROR_EAGAIN) {
      session_.set_unfinished([this, &candidate] { return try_candidate(candidate) != LIBSSH2_ERROR_EAGAIN; });
      return SshStep::kAgain;
    }
    session_.set_unfinished(nullptr);
    if (rc == 0) {
      return SshStep::kDone;
    }
    tried_.push_back(candidate.file.path + " (" + (candidate.file.type == "pem" ? "PEM" : candidate.file.type) + ")");
    tried_rsa_ = tried_rsa_ || candidate.file.is_rsa();
    was_cut_off_ = rc == LIBSSH2_ERROR_SOCKET_DISCONNECT || rc == LIBSSH2_ERROR_SOCKET_SEND || session_.is_peer_gone();
    if (was_cut_off_) {
      break;
    }
    ++at_;
  }
  if (!tried_.empty() && !was_cut_off_) {
    // A server that took a key and wants more now names other ways. One that has heard enough hangs up.
    const Result<SshStep> asked = ask_methods(left_);
    if (asked.ok() && asked.value() == SshStep::kAgain) {
      return asked;
    }
    was_cut_off_ = !asked.ok();
  }
  return refusal();
}

std::string SshLogin::beyond_us() const {
  const std::string& methods = left_.empty() ? methods_ : left_;
  const auto accepts = [&methods](const char* method) { return methods.find(method) != std::string::npos; };
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
  if (was_cut_off_ && tried_.size() == 1) {
    // A rule about accounts, as that of pam_slurm_adopt, sends its reason as a banner, which libssh2 keeps back.
    return "the server closed the connection after one key, and ssh shows what it says";
  }
  return "";
}

Error SshLogin::refusal() const {
  if (session_.refusal()) {
    return Error(Code::kAuth, "not logged in: " + session_.refusal()->message());
  }
  std::string text = "permission denied for user " + config_.user + " (the server accepts: " + methods_ + ")";
  if (methods_.find("publickey") == std::string::npos) {
    return Error(Code::kAuth, text + "; it takes no public key, or only after that, and hvdrun answers no questions; " +
                                  std::string(kLogInFirst));
  }
  if (!left_.empty() && left_ != methods_) {
    return Error(Code::kAuth, "the server took a key of user " + config_.user + ", and asks for more (" + left_ +
                                  "), which hvdrun cannot answer; " + std::string(kLogInFirst));
  }
  text += tried_.empty() ? "; no usable key was found" : "; tried " + joined(tried_);
  if (was_cut_off_) {
    text += "; then the server closed the connection";
    text += tried_.size() > 1 ? " (too many attempts? name one key with IdentityFile and IdentitiesOnly)" : "";
  }
  if (!skipped_.empty()) {
    text += "; skipped " + joined(skipped_);
  }
  if (tried_rsa_ && !signs_rsa_with_sha2()) {
    text += "; RSA keys: " + libssh2_version_text() +
            " signs them with SHA-1 only, which OpenSSH 8.8 and newer refuse; use an ed25519 key (ssh-keygen -t "
            "ed25519, then ssh-copy-id)";
  } else {
    const std::string port = config_.port == 22 ? "" : " -p " + std::to_string(config_.port);
    text += "; try: ssh -o BatchMode=yes" + port + " -l " + config_.user + " " + config_.hostname + " true";
  }
  return Error(Code::kAuth, text);
}

}  // namespace hvd::launch

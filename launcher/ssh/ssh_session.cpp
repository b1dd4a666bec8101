#include "launcher/ssh/ssh_session.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <string_view>
#include <vector>

// libssh2_session_callback_set() has a successor since 1.11.1, which older versions lack.
#define LIBSSH2_DISABLE_DEPRECATION
#include <libssh2.h>

#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

// A node may send so much before it hears from us: 2 MiB fill a path of 1 Gbit/s and 16 ms.
constexpr unsigned int kWindowBytes = 2 * 1024 * 1024;
// An unfinished step on a dead socket fails at its first repeat, or after what libssh2 had still buffered.
constexpr int kMaxLastSteps = 64;
// Newer versions announce these among the key exchanges, and would lose them when the user has a list: better
// signatures for RSA, and the guard against packets slipped in before the first key.
constexpr const char* kKexExtensions = ",ext-info-c,kex-strict-c-v00@openssh.com";

Result<void> init_library() {
  static std::once_flag once;
  static int failed = 0;
  std::call_once(once, [] { failed = libssh2_init(0); });
  if (failed != 0) {
    return Error(Code::kInternal, "libssh2 does not start (code " + std::to_string(failed) + ")");
  }
  return {};
}

// These key exchanges compute for longer than the loop may stand still. In those with a group exchange the server
// chooses the modulus: libssh2 accepts one of 40,000 bytes and computes for hours, while 8,192 bits take 0.2 s. For a
// server that has no others, the user's own ssh takes over, which is a separate process.
constexpr std::array<std::string_view, 3> kSlowKeyExchanges = {
    "diffie-hellman-group-exchange-sha256", "diffie-hellman-group-exchange-sha1", "diffie-hellman-group18-sha512"};

bool is_slow(std::string_view name) {
  return std::find(kSlowKeyExchanges.begin(), kSlowKeyExchanges.end(), name) != kSlowKeyExchanges.end();
}

// Returns what libssh2 knows of a method, the best first, without those for which is_slow() is true.
std::vector<std::string> known_names(LIBSSH2_SESSION* session, int method) {
  const char** known = nullptr;
  const int count = libssh2_session_supported_algs(session, method, &known);
  if (count <= 0) {
    return {};
  }
  std::vector<std::string> names(known, known + count);
  libssh2_free(session, known);
  std::erase_if(names, is_slow);
  return names;
}

// Returns the `wanted` names that libssh2 knows, in their order. libssh2_session_method_pref would leave out the others
// too, but up to 1.10 it does so by a memcpy() within one buffer.
std::string common_names(LIBSSH2_SESSION* session, int method, std::string_view wanted) {
  const std::vector<std::string> known = known_names(session, method);
  std::vector<std::string> common;
  while (!wanted.empty()) {
    const std::string_view name = take_until(wanted, ',');
    if (std::find(known.begin(), known.end(), name) != known.end()) {
      common.emplace_back(name);
    }
  }
  return joined(common, ",");
}

ssize_t take(libssh2_socket_t, void* into, std::size_t size, int flags, void** intake) {
  return static_cast<SshIntake*>(*intake)->take(static_cast<char*>(into), size, flags);
}

}  // namespace

std::string libssh2_version_text() {
  return std::string("libssh2 ") + libssh2_version(0);
}

Result<std::unique_ptr<SshSession>> SshSession::create(Fd socket) {
  HVD_TRY(init_library());
  std::unique_ptr<SshSession> made(new SshSession(std::move(socket)));
  made->session_ = libssh2_session_init_ex(nullptr, nullptr, nullptr, &made->intake_);
  if (made->session_ == nullptr) {
    return Error(Code::kResource, "no memory for an ssh session");
  }
  libssh2_session_callback_set(made->session_, LIBSSH2_CALLBACK_RECV, reinterpret_cast<void*>(take));
  libssh2_session_set_blocking(made->session_, 0);
  return made;
}

// libssh2 frees what a half-done handshake, login or channel open holds only when that step itself ends. So the socket
// is shut down and the step repeated: it fails at once and cleans up after itself.
void SshSession::abandon_step() {
  if (!unfinished_) {
    return;
  }
  shut_down();
  for (int i = 0; i < kMaxLastSteps && !unfinished_(); ++i) {
  }
  unfinished_ = nullptr;
}

// Bytes that the system has already received are not read either.
void SshSession::shut_down() {
  ::shutdown(socket_.get(), SHUT_RDWR);
  intake_.cut();
}

// Nothing here can block: the close message that libssh2 would like to send fails on the socket that is shut down, and
// TCP tells the peer of the end.
SshSession::~SshSession() {
  if (session_ == nullptr) {
    return;
  }
  abandon_step();
  if (pending_ == Op::kNone && libssh2_userauth_authenticated(session_) != 0) {
    libssh2_session_disconnect_ex(session_, SSH_DISCONNECT_BY_APPLICATION, "done", "");
  }
  shut_down();
  for (int i = 0; channel_ != nullptr && i < kMaxLastSteps; ++i) {
    if (libssh2_channel_free(channel_) != LIBSSH2_ERROR_EAGAIN) {
      break;
    }
  }
  for (int i = 0; i < kMaxLastSteps; ++i) {
    if (libssh2_session_free(session_) != LIBSSH2_ERROR_EAGAIN) {
      break;
    }
  }
}

Result<void> SshSession::allow_of(int method, const char* name, const std::string& wanted) {
  const std::string list = common_names(session_, method, wanted);
  if (list.empty() || libssh2_session_method_pref(session_, method, list.c_str()) != 0) {
    return Error(Code::kAuth, libssh2_version_text() + " knows none of the " + name + " for it");
  }
  return {};
}

Result<void> SshSession::allow(const SshAlgorithms& algorithms) {
  HVD_TRY(allow_of(LIBSSH2_METHOD_HOSTKEY, "HostKeyAlgorithms", algorithms.host_keys));
  const std::string key_exchange = algorithms.key_exchange.empty()
                                       ? joined(known_names(session_, LIBSSH2_METHOD_KEX), ",")
                                       : algorithms.key_exchange + kKexExtensions;
  HVD_TRY(allow_of(LIBSSH2_METHOD_KEX, "KexAlgorithms", key_exchange));
  if (!algorithms.ciphers.empty()) {
    HVD_TRY(allow_of(LIBSSH2_METHOD_CRYPT_CS, "Ciphers", algorithms.ciphers));
    HVD_TRY(allow_of(LIBSSH2_METHOD_CRYPT_SC, "Ciphers", algorithms.ciphers));
  }
  if (!algorithms.macs.empty()) {
    HVD_TRY(allow_of(LIBSSH2_METHOD_MAC_CS, "MACs", algorithms.macs));
    HVD_TRY(allow_of(LIBSSH2_METHOD_MAC_SC, "MACs", algorithms.macs));
  }
  return {};
}

Error SshSession::last_error(const std::string& what) const {
  if (refusal()) {
    return *refusal();
  }
  char* text = nullptr;
  const int code = libssh2_session_last_error(session_, &text, nullptr, 0);
  const bool has_text = text != nullptr && *text != '\0';
  const std::string words = has_text ? text : "failed";
  const bool is_lost = code == LIBSSH2_ERROR_SOCKET_DISCONNECT || code == LIBSSH2_ERROR_SOCKET_SEND ||
                       code == LIBSSH2_ERROR_SOCKET_RECV || code == LIBSSH2_ERROR_BANNER_RECV;
  return Error(is_lost ? Code::kLostPeer : Code::kProtocol, what + ": " + words + " (" + std::to_string(code) + ")");
}

Result<SshStep> SshSession::step(int rc, const char* what, std::function<int()> again) {
  if (rc == LIBSSH2_ERROR_EAGAIN) {
    unfinished_ = [again = std::move(again)] { return again() != LIBSSH2_ERROR_EAGAIN; };
    return SshStep::kAgain;
  }
  unfinished_ = nullptr;
  if (rc < 0) {
    return last_error(what);
  }
  return SshStep::kDone;
}

Result<SshStep> SshSession::handshake() {
  const auto call = [this] { return libssh2_session_handshake(session_, socket_.get()); };
  return step(call(), "key exchange", call);
}

HostKey SshSession::host_key() const {
  std::size_t size = 0;
  int type = 0;
  const char* blob = libssh2_session_hostkey(session_, &size, &type);
  HostKey key;
  if (blob != nullptr) {
    key.blob.assign(blob, size);
    key.type = key_type_of_blob(key.blob);
  }
  return key;
}

Result<SshStep> SshSession::open_channel() {
  const auto call = [this] {
    channel_ = libssh2_channel_open_ex(session_, "session", sizeof "session" - 1, kWindowBytes,
                                       LIBSSH2_CHANNEL_PACKET_DEFAULT, nullptr, 0);
    return channel_ != nullptr ? 0 : libssh2_session_last_errno(session_);
  };
  return step(call(), "opening a channel", call);
}

Result<SshStep> SshSession::exec(const std::string& command) {
  const auto call = [this, command] {
    return libssh2_channel_process_startup(channel_, "exec", sizeof "exec" - 1, command.data(),
                                           static_cast<unsigned int>(command.size()));
  };
  return step(call(), "starting the remote command", call);
}

void SshSession::note_block(Op op) {
  const bool is_half_sent = (libssh2_session_block_directions(session_) & LIBSSH2_SESSION_BLOCK_OUTBOUND) != 0;
  pending_ = is_half_sent ? op : Op::kNone;
}

Result<std::size_t> SshSession::read(Source source, MutableBytes into) {
  if (pending_ == Op::kWrite) {
    return std::size_t{0};
  }
  const int stream = source == Source::kErrors ? SSH_EXTENDED_DATA_STDERR : 0;
  const ssize_t got = libssh2_channel_read_ex(channel_, stream, reinterpret_cast<char*>(into.data()), into.size());
  if (got == LIBSSH2_ERROR_EAGAIN) {
    note_block(Op::kRead);
    return std::size_t{0};
  }
  pending_ = Op::kNone;
  if (got < 0) {
    return last_error("reading");
  }
  return static_cast<std::size_t>(got);
}

Result<std::size_t> SshSession::write(Bytes bytes) {
  if (pending_ == Op::kRead || bytes.empty()) {
    return std::size_t{0};
  }
  const ssize_t taken =
      libssh2_channel_write_ex(channel_, 0, reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (taken == LIBSSH2_ERROR_EAGAIN) {
    note_block(Op::kWrite);
    return std::size_t{0};
  }
  pending_ = Op::kNone;
  if (taken < 0) {
    return last_error("writing");
  }
  return static_cast<std::size_t>(taken);
}

Result<SshStep> SshSession::send_end_of_input() {
  if (pending_ == Op::kRead) {
    return SshStep::kAgain;
  }
  const int rc = libssh2_channel_send_eof(channel_);
  if (rc == LIBSSH2_ERROR_EAGAIN) {
    note_block(Op::kWrite);
    return SshStep::kAgain;
  }
  pending_ = Op::kNone;
  if (rc < 0) {
    return last_error("ending the input");
  }
  return SshStep::kDone;
}

bool SshSession::at_end() const {
  return libssh2_channel_eof(channel_) == 1;
}

Result<SshStep> SshSession::wait_closed() {
  const int rc = libssh2_channel_wait_closed(channel_);
  if (rc == LIBSSH2_ERROR_EAGAIN) {
    return SshStep::kAgain;
  }
  if (rc < 0) {
    return last_error("waiting for the end");
  }
  return SshStep::kDone;
}

SshSession::Exit SshSession::exit() const {
  Exit exit;
  exit.status = libssh2_channel_get_exit_status(channel_);
  char* signal = nullptr;
  std::size_t size = 0;
  libssh2_channel_get_exit_signal(channel_, &signal, &size, nullptr, nullptr, nullptr, nullptr);
  if (signal != nullptr) {
    exit.signal.assign(signal, size);
    libssh2_free(session_, signal);
  }
  return exit;
}

std::uint32_t SshSession::wanted_events() const {
  if (pending_ != Op::kNone) {
    return EPOLLOUT;  // nothing else may be done before that packet is out; EPOLLIN would only spin
  }
  if (unfinished_) {
    const int directions = libssh2_session_block_directions(session_);
    const bool is_out = (directions & LIBSSH2_SESSION_BLOCK_OUTBOUND) != 0;
    return is_out ? EPOLLIN | EPOLLOUT : EPOLLIN;
  }
  return EPOLLIN;
}

bool SshSession::has_no_common_algorithm() const {
  return libssh2_session_last_errno(session_) == LIBSSH2_ERROR_KEX_FAILURE;
}

bool SshSession::has_work(bool has_output) const {
  if (pending_ != Op::kNone) {
    return false;
  }
  unsigned long queued = 0;
  libssh2_channel_window_read_ex(channel_, &queued, nullptr);
  return queued > 0 || (has_output && libssh2_channel_window_write_ex(channel_, nullptr) > 0);
}

bool SshSession::is_peer_gone() const {
  char byte = 0;
  const ssize_t got = ::recv(socket_.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
}

}  // namespace hvd::launch

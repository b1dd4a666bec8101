#include "launcher/ssh/ssh_reach.h"

#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "launcher/ssh/host_key_policy.h"
#include "launcher/transport/dropped.h"

namespace hvd::launch {
namespace {

constexpr Duration kDefaultTimeout = std::chrono::seconds(10);
// After this time a silent name or address is waited for without a slot. Otherwise a rack without power would delay all
// other hosts by 10 s for every eight of its own.
constexpr Duration kSilentSlotTime = std::chrono::milliseconds(250);
// A login that takes longer waits for somebody, such as a directory server, and does no more work. So the next host may
// begin.
constexpr Duration kLoginSlotTime = std::chrono::seconds(10);
// ssh-agent needs little time to list its keys, since it asks nobody for that.
constexpr Duration kListTime = std::chrono::seconds(2);
constexpr Duration kMuteTime = std::chrono::seconds(30);     // then it is asked again
constexpr Duration kAttemptPause = std::chrono::seconds(1);  // as ssh waits between its ConnectionAttempts

std::string first_line(const std::string& text) {
  return text.substr(0, text.find_first_of("\r\n"));
}

// Returns what in the configuration only the user's own ssh can do, as a reason; it may be empty.
std::string needs_ssh(const SshHostConfig& config) {
  if (!config.needs_ssh.empty()) {
    return "ssh_config has '" + config.needs_ssh + "' for it";
  }
  struct stat info{};
  if (!config.control_path.empty() && ::stat(config.control_path.c_str(), &info) == 0 && S_ISSOCK(info.st_mode)) {
    return "a connection to it stands open at its ControlPath " + config.control_path;
  }
  return "";
}

bool is_loopback(const std::string& ip) {
  return ip == "::1" || ip.starts_with("127.");
}

// Returns what each of a host's addresses has said, or nothing when there is only one.
std::string attempts_at(const std::vector<SocketAddress>& addresses, const TcpDial& dial) {
  return addresses.size() > 1 ? dial.words() : "";
}

SshRequest make_request(const SshShared& shared, const NodeTarget& target) {
  return {target.host, target.user, target.port != 0 ? target.port : shared.options.port, shared.options.identity_file,
          shared.options.config_file};
}

}  // namespace

SshReach::SshReach(SshShared& shared, const NodeTarget& target, Done done)
    : shared_(shared), request_(make_request(shared, target)), done_(std::move(done)), words_(request_) {}

SshReach::~SshReach() {
  unwatch_agent();
  release_slot();
  shared_.loop.cancel(answer_timer_);
  shared_.loop.cancel(agent_limit_);
  shared_.loop.cancel(deadline_);
  shared_.loop.cancel(backoff_);
  shared_.loop.unwatch(watch_);
  shared_.resolver.cancel(lookup_);
}

void SshReach::start() {
  answer_timer_ = shared_.loop.after(shared_.options.answer_time, [this] { on_out_of_time(); });
  take_slot([this] { begin(); });
}

void SshReach::take_slot(EventLoop::Task then) {
  stop_clock();
  shared_.loop.cancel(std::exchange(slot_timer_, 0));
  ticket_ = shared_.slots.acquire(std::move(then));
}

void SshReach::release_slot_after(Duration patience) {
  shared_.loop.cancel(slot_timer_);
  slot_timer_ = shared_.loop.after(patience, [this] { release_slot(); });
}

void SshReach::release_slot() {
  shared_.loop.cancel(std::exchange(slot_timer_, 0));
  shared_.slots.release(std::exchange(ticket_, 0));
}

void SshReach::run_clock() {
  running_since_ = shared_.loop.now();
  deadline_ = shared_.loop.after(std::max(left_, Duration::zero()), [this] { time_out(timeout_); });
}

void SshReach::stop_clock() {
  if (deadline_ != 0) {
    shared_.loop.cancel(std::exchange(deadline_, 0));
    left_ -= shared_.loop.now() - running_since_;
  }
}

void SshReach::begin() {
  if (const Result<void> checked = check_ssh_request(request_); !checked.ok()) {
    return fail(checked.error());
  }
  const Duration wanted = shared_.options.connect_timeout;
  timeout_ = wanted > Duration::zero() ? wanted : kDefaultTimeout;
  left_ = timeout_;
  run_clock();
  query_ = std::make_unique<SshQuery>(shared_.loop,
                                      [this](Result<SshQuery::Answer> answer) { on_config(std::move(answer)); });
  if (const Result<void> begun = query_->start(ssh_config_argv(request_), shared_.options.environment); !begun.ok()) {
    fail(begun.error());
  }
}

void SshReach::on_config(Result<SshQuery::Answer> answer) {
  query_.reset();
  stop_clock();
  if (!answer.ok()) {
    return fail(answer.error());
  }
  const SshQuery::Answer& got = answer.value();
  if (!got.has_program) {
    config_ = default_ssh_config(request_, shared_.local);
    return resolve();
  }
  if (got.exit_code != 0) {
    // In a container a user may be any number, as on OpenShift.
    const bool is_nobody = got.errors.starts_with("No user exists for uid");
    return fail(Error(Code::kInvalid, "'ssh -G' failed: " + first_line(got.errors) + "; " +
                                          (is_nobody ? "ssh needs a line for it in /etc/passwd, on this machine"
                                                     : "check the ssh configuration")));
  }
  auto config = parse_ssh_config(got.output, request_, shared_.local);
  if (!config.ok()) {
    return fail(config.error());
  }
  config_ = std::move(config).value();
  has_ssh_ = true;
  if (const std::string because = needs_ssh(config_); !because.empty()) {
    return give_way(because, Error(Code::kInvalid, because));
  }
  if (shared_.options.connect_timeout == Duration::zero() && config_.connect_timeout > Duration::zero()) {
    timeout_ = config_.connect_timeout;
  }
  resolve();
}

// No clock runs here: ssh itself waits as long as name servers take, and this name may wait for the names of others.
void SshReach::resolve() {
  words_.set_server(config_.hostname, config_.port);
  known_ = load_known_hosts(config_);
  if (const KnownHost* authority = find_authority(known_); authority != nullptr) {
    const std::string because = certified_by(*authority);
    return give_way(because, Error(Code::kAuth, because));
  }
  release_slot_after(kSilentSlotTime);
  lookup_ = shared_.resolver.resolve(
      config_.hostname, config_.port, config_.address_family,
      [this](Result<std::vector<SocketAddress>> addresses) { on_addresses(std::move(addresses)); });
}

void SshReach::on_addresses(Result<std::vector<SocketAddress>> addresses) {
  lookup_ = 0;
  if (!addresses.ok()) {
    return fail(words_.not_resolved(addresses.error()));
  }
  addresses_ = dialling_order(addresses.value());
  left_ = timeout_;
  dial();
}

void SshReach::dial() {
  not_connected_.reset();
  run_clock();
  release_slot_after(kSilentSlotTime);
  dial_ = std::make_unique<TcpDial>(shared_.loop, addresses_,
                                    [this](Result<Fd> socket) { on_connected(std::move(socket)); });
  dial_->start();
}

void SshReach::on_connected(Result<Fd> socket) {
  const std::unique_ptr<TcpDial> dial = std::move(dial_);
  const SocketAddress used = dial->current();
  words_.set_address(used.ip());
  if (!socket.ok()) {
    return on_not_connected(words_.not_connected(socket.error(), attempts_at(addresses_, *dial)));
  }
  addresses_ = {used};  // a retry goes where the connection worked
  socket_ = std::move(socket).value();
  if (ticket_ == 0) {
    return take_slot([this] {
      run_clock();
      shake_hands();
    });
  }
  shared_.loop.cancel(std::exchange(slot_timer_, 0));
  shake_hands();
}

// A node that starts may have an address before its sshd listens. ConnectionAttempts says how often to try.
void SshReach::on_not_connected(const Error& why) {
  if (++attempts_ >= config_.connection_attempts) {
    return fail(why);
  }
  stop_clock();
  left_ = timeout_;  // ConnectTimeout is that of one attempt
  not_connected_ = why;
  backoff_ = shared_.loop.after(kAttemptPause, [this] { dial(); });
}

void SshReach::shake_hands() {
  if (const Result<void> begun = begin_handshake(); !begun.ok()) {
    return give_way(begun.error().message(), begun.error());
  }
  drive();
}

Result<void> SshReach::begin_handshake() {
  HVD_TRY(tune_tcp(socket_.get()));
  HVD_TRY_ASSIGN(session_, SshSession::create(std::move(socket_)));
  SshAlgorithms algorithms = config_.algorithms;
  algorithms.host_keys = host_key_algorithms(config_.algorithms.host_keys, known_);
  HVD_TRY(session_->allow(algorithms));
  HVD_TRY_ASSIGN(watch_, shared_.loop.watch(session_->fd(), EPOLLIN, [this](std::uint32_t) { drive(); }));
  return {};
}

void SshReach::drive() {
  if (login_ != nullptr) {
    return drive_login();
  }
  const Result<SshStep> step = session_->handshake();
  if (!step.ok()) {
    return on_handshake_failed(step.error());
  }
  if (step.value() == SshStep::kAgain) {
    shared_.loop.rewatch(watch_, session_->wanted_events());
    return;
  }
  if (const Result<void> verified = verify_host_key(); !verified.ok()) {
    return fail(verified.error());
  }
  // As with ssh, ConnectTimeout does not limit the login: servers may have to ask others about it.
  stop_clock();
  release_slot_after(kLoginSlotTime);
  const bool is_mute = config_.identity_agent == shared_.mute_agent && shared_.loop.now() < shared_.mute_until;
  login_ = std::make_unique<SshLogin>(*session_, config_, !is_mute);
  drive_login();
}

Result<void> SshReach::verify_host_key() {
  if (config_.trusts_loopback && config_.host_key_alias.empty() && is_loopback(words_.address())) {
    return {};
  }
  const HostKey key = session_->host_key();
  HVD_TRY_ASSIGN(HostKeyRuling ruling, rule_on_host_key(config_, words_.by_hand(), known_, key));
  if (ruling.remember) {
    if (const Result<void> remembered = remember_host_key(config_, key); !remembered.ok()) {
      ruling.notice = remembered.error().message() + "; the new host key " + key.type + " " + fingerprint(key.blob) +
                      " is accepted for this time";
    }
  }
  if (!ruling.notice.empty()) {
    shared_.log.write(LogLevel::kWarning, request_.host + ": " + ruling.notice);
  }
  return {};
}

// This replaces a watch even if the new descriptor has the old one's number.
Result<void> SshReach::watch_agent() {
  const SshLogin::Waits waits = login_->waits();
  unwatch_agent();
  if (waits.fd < 0) {
    return {};
  }
  HVD_TRY_ASSIGN(agent_watch_, shared_.loop.watch(waits.fd, waits.events, [this](std::uint32_t) { drive(); }));
  if (login_->is_listing() && agent_limit_ == 0) {
    agent_limit_ = shared_.loop.after(kListTime, [this] {
      agent_limit_ = 0;
      unwatch_agent();
      shared_.mute_agent = config_.identity_agent;
      shared_.mute_until = shared_.loop.now() + kMuteTime;
      login_->give_up_listing();
      drive();
    });
  }
  return {};
}

void SshReach::unwatch_agent() {
  shared_.loop.unwatch(agent_watch_);
  agent_watch_ = 0;
}

void SshReach::drive_login() {
  unwatch_agent();
  const Result<SshStep> step = login_->advance();
  if (!login_->is_listing()) {
    shared_.loop.cancel(std::exchange(agent_limit_, 0));
  }
  if (!step.ok()) {
    return give_way(session_->refusal() ? "" : login_->beyond_us(), step.error());
  }
  if (step.value() == SshStep::kAgain) {
    shared_.loop.rewatch(watch_, session_->wanted_events());
    if (const Result<void> watched = watch_agent(); !watched.ok()) {
      fail(watched.error());
    }
    return;
  }
  login_.reset();
  session_->trust();
  shared_.loop.unwatch(watch_);
  Reached reached;
  const auto local = SocketAddress::local_of(session_->fd());
  reached.launcher_address = local.ok() ? local.value().ip() : "";
  reached.node_address = words_.address();
  reached.session = std::move(session_);
  finish(std::move(reached));
}

void SshReach::on_handshake_failed(const Error& error) {
  const bool has_nothing_common = session_->has_no_common_algorithm();
  const bool is_refused = session_->refusal().has_value();
  const bool may_retry = session_->is_peer_gone() && !has_nothing_common && !is_refused;
  shared_.loop.unwatch(watch_);
  session_.reset();
  if (may_retry) {
    const Duration wait = drop_backoff(hangups_, shared_.jitter);
    ++hangups_;
    // The slot is released: connections that are made and wait for a slot may be what fills the server up.
    release_slot();
    backoff_ = shared_.loop.after(wait, [this] { take_slot([this] { dial(); }); });
    return;
  }
  // The user's ssh knows more algorithms than libssh2, and checks the host key by itself.
  if (has_nothing_common) {
    return give_way(libssh2_version_text() + " shares no algorithm with the server",
                    Error(Code::kAuth, no_common_algorithm(config_, known_)));
  }
  // For a refused server there is no other way: ssh would hear no more of it than we did.
  give_way(is_refused ? "" : libssh2_version_text() + " found no session with the server", words_.no_session(error));
}

void SshReach::time_out(Duration spent) {
  if (query_ != nullptr) {
    return fail(SshReachWords::no_config_within(spent));
  }
  if (hangups_ > 0) {
    return fail(words_.hung_up_within(spent, hangups_));
  }
  if (session_ != nullptr) {
    return fail(words_.no_session_within(spent));
  }
  const std::string attempts = dial_ != nullptr ? attempts_at(addresses_, *dial_) : "";
  if (dial_ != nullptr && attempts.empty()) {
    words_.set_address(dial_->current().ip());
  }
  dial_.reset();
  on_not_connected(words_.not_connected_within(spent, attempts));
}

// This runs a little before --start-timeout, which would only know that nothing came.
void SshReach::on_out_of_time() {
  const Duration limit = shared_.options.answer_time;
  if (lookup_ != 0) {
    return fail(words_.not_resolved_within(limit));
  }
  if (not_connected_) {
    const Error why = *not_connected_;
    return fail(why);
  }
  if (login_ != nullptr && !login_->signs_with().empty()) {
    return fail(SshReachWords::not_signed_within(limit, login_->signs_with()));
  }
  if (login_ != nullptr) {
    return fail(words_.not_logged_in_within(limit));
  }
  if (deadline_ == 0 && hangups_ == 0) {
    return fail(SshReachWords::no_turn_within(limit, socket_.is_open(), shared_.options.max_handshakes));
  }
  stop_clock();
  attempts_ = config_.connection_attempts;  // there is no time for another one
  time_out(timeout_ - std::max(left_, Duration::zero()));
}

void SshReach::give_way(const std::string& because, const Error& own_try) {
  if (has_ssh_ && !because.empty()) {
    way_out_ = WayOut{because, own_try.message() == because ? "" : own_try.message()};
  }
  fail(own_try);
}

void SshReach::fail(const Error& why) {
  finish(Error(why.code(), request_.host + ": " + why.message()));
}

void SshReach::finish(Result<Reached> result) {
  shared_.loop.cancel(answer_timer_);
  shared_.loop.cancel(deadline_);
  const Done done = std::exchange(done_, nullptr);
  done(std::move(result));
}

}  // namespace hvd::launch

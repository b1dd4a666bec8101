// hvdrun-agent is the node's side of hvdrun, one fully static executable. A transport starts it as `hvdrun-agent
// serve`, with the launcher at its standard input and output. An engine starts it as `hvdrun-agent call ENGINE STACK
// ADDRESS...`, for each rank or each node, and it then connects to the launcher. In a pod of Kubernetes it is
// `hvdrun-agent call kubernetes --key-file FILE HOST:PORT`, as a manifest has it. `hvdrun join` becomes `hvdrun-agent
// join FILE SLOTS`. A job file's clean-up runs `hvdrun-agent remove FOLDER...`.
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <iostream>

#include <string.h>

#include "launcher/agent/agent_core.h"
#include "launcher/agent/dial.h"
#include "launcher/agent/guardian.h"
#include "launcher/process/inherited_signals.h"
#include "launcher/process/own_process.h"
#include "launcher/process/remove_tree.h"
#include "launcher/process/spawn.h"
#include "launcher/state/exit_codes.h"
#include "launcher/wire/engine_call.h"
#include "launcher/wire/join_file.h"
#include "runtime/base/open_files.h"
#include "runtime/base/text.h"
#include "runtime/bench/bench_rank.h"
#include "runtime/io/event_loop.h"
#include "runtime/rendezvous/crypto.h"

namespace {

using hvd::Fd;

// The launcher listens before an agent is started, so this time covers a slow network, not a slow start.
constexpr auto kDialTime = std::chrono::seconds(30);
// A task that starts an agent gets this long to write its order.
constexpr auto kOrderTime = std::chrono::seconds(30);

using Session = hvd::launch::AgentConnection;
using OpenSession = std::function<hvd::Result<Session>()>;

std::vector<std::string> own_environment() {
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    environment.emplace_back(*entry);
  }
  // Ranks may start where this agent is, and an engine's task may have the PWD of whoever has started the engine.
  if (const auto here = hvd::working_directory(environment); here.ok()) {
    std::erase_if(environment, [](const std::string& entry) { return entry.starts_with("PWD="); });
    environment.push_back("PWD=" + here.value());
  }
  return environment;
}

// Ends the agent when its standard input does. The input of an agent with an order is a pipe from its task, which
// closes however the task ends.
hvd::Result<void> watch_leash(hvd::EventLoop& loop, hvd::launch::AgentCore& core) {
  HVD_TRY(hvd::set_nonblocking(STDIN_FILENO));
  auto watch = std::make_shared<hvd::WatchId>(0);  // shared: the handler removes itself
  HVD_TRY_ASSIGN(*watch, loop.watch(STDIN_FILENO, EPOLLIN, [&loop, &core, watch](std::uint32_t) {
    char rest[64];
    const ssize_t got = ::read(STDIN_FILENO, rest, sizeof rest);
    if (got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR))) {
      return;
    }
    loop.unwatch(*watch);
    core.on_end("the task that started it is over");
  }));
  return {};
}

// Tells the user how a job ended that this agent had joined, and returns the exit code.
int end_of_join(const hvd::launch::AgentCore& core, hvd::Log& log) {
  namespace exit_code = hvd::launch::exit_code;
  const auto& bye = core.bye();
  const int code = bye ? bye->code : core.is_told_to_end() ? 128 + SIGTERM : exit_code::kNodeLost;
  if (!bye && code == exit_code::kNodeLost) {
    log.write(hvd::LogLevel::kError, "the job's hvdrun, or the connection to it, is gone: " + core.why_over());
  } else if (bye && !bye->why.empty()) {
    log.write(code == 0 ? hvd::LogLevel::kInfo : hvd::LogLevel::kError, bye->why);
  }
  return code;
}

// Returns the exit code of this process.
hvd::Result<int> serve(hvd::launch::AgentOptions options, const OpenSession& open_session, hvd::Log& log) {
  ::signal(SIGPIPE, SIG_IGN);  // a closed session is an error of write(2), not the agent's death
  ::signal(SIGXFSZ, SIG_IGN);  // a file that grows beyond ulimit -f too
  const bool has_leash = options.has_leash;
  const bool joins = options.joins;
  HVD_TRY_ASSIGN(Session session, open_session());
  const hvd::SteadyClock clock;
  HVD_TRY_ASSIGN(const std::unique_ptr<hvd::EventLoop> loop, hvd::EventLoop::create(clock));
  hvd::launch::AgentCore* core = nullptr;
  HVD_TRY(loop->watch_signals({SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2}, [&core](int signo) {
    if (core == nullptr) {
      return;
    }
    if (signo == SIGCHLD) {
      core->on_child_signal();
    } else if (signo == SIGUSR1 || signo == SIGUSR2) {
      core->on_user_signal(signo);
    } else {
      core->on_end_signal(signo);
    }
  }));
  HVD_TRY_ASSIGN(const std::unique_ptr<hvd::launch::AgentCore> owner,
                 hvd::launch::AgentCore::create(*loop, std::move(options), std::move(session), log));
  core = owner.get();
  if (has_leash) {
    HVD_TRY(watch_leash(*loop, *core));
  }
  HVD_TRY(loop->run());
  return joins ? end_of_join(*core, log) : 0;
}

// Runs both processes of the agent; returns the exit code of this one. `is_called`: an engine or a user has started it,
// in an environment that may be that of another machine.
int run_agent(const hvd::launch::AgentOptions& options, const OpenSession& open_session, bool is_called,
              hvd::Log& log) {
  const auto [base, why] = hvd::launch::scratch_base(hvd::launch::value_in(options.environment, "TMPDIR"), is_called);
  if (!why.empty()) {
    log.write(hvd::LogLevel::kWarning, why);
  }
  const auto run = [&](const std::string& scratch_dir) {
    hvd::launch::AgentOptions own = options;
    own.scratch_dir = scratch_dir;
    const auto served = serve(std::move(own), open_session, log);
    if (!served.ok()) {
      log.write(hvd::LogLevel::kError, served.error().message());
    }
    const bool is_unreachable = !served.ok() && served.error().code() == hvd::Code::kUnreachable;
    return served.ok()      ? served.value()
           : !options.joins ? 1
           : is_unreachable ? hvd::launch::exit_code::kUnreachable
                            : hvd::launch::exit_code::kStartFailed;
  };
  const auto code = hvd::launch::run_guarded(base, run, options.joins);
  if (!code.ok()) {
    log.write(hvd::LogLevel::kError, code.error().message());
    return 1;
  }
  return code.value();
}

// Takes the key of the call, and removes it from `environment` and from what /proc shows of this process.
hvd::Result<hvd::launch::CallKey> take_key(std::vector<std::string>& environment) {
  const std::string text = hvd::launch::value_in(environment, hvd::launch::kCallSecretVariable);
  const std::string name = std::string(hvd::launch::kCallSecretVariable) + "=";
  std::erase_if(environment, [&name](const std::string& entry) { return entry.compare(0, name.size(), name) == 0; });
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (::strncmp(*entry, name.c_str(), name.size()) == 0) {
      ::explicit_bzero(*entry + name.size(), ::strlen(*entry) - name.size());
    }
  }
  return hvd::launch::parse_call_key(text);
}

using Dial = std::function<hvd::Result<hvd::launch::DialedLauncher>()>;

hvd::Result<Session> dial(const Dial& call) {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signo : {SIGTERM, SIGINT, SIGHUP}) {
    sigaddset(&signals, signo);
  }
  // Nothing has to be ended in order yet, so let an engine's signals end the process at once.
  ::sigprocmask(SIG_UNBLOCK, &signals, nullptr);
  HVD_TRY_ASSIGN(hvd::launch::DialedLauncher dialed, call());
  ::sigprocmask(SIG_BLOCK, &signals, nullptr);
  return Session{std::move(dialed.fd), Fd(), hvd::make_record_filter(dialed.keys)};
}

// Reads standard input up to `end`, which is left out, byte by byte, because the bytes after it belong to other
// readers.
hvd::Result<std::string> read_input_until(std::string_view end, std::size_t most) {
  const hvd::Deadline deadline = hvd::Deadline::after(kOrderTime);
  std::string text;
  while (text.size() < most && !text.ends_with(end)) {
    pollfd input{STDIN_FILENO, POLLIN, 0};
    char byte = 0;
    if (::poll(&input, 1, deadline.poll_ms()) == 0 || deadline.has_passed()) {
      return hvd::Error(hvd::Code::kTimeout, "no order has come at its standard input");
    }
    const ssize_t got = ::read(STDIN_FILENO, &byte, 1);
    if (got == 0) {
      break;
    }
    if (got > 0) {
      text += byte;
    } else if (errno != EINTR && errno != EAGAIN) {
      return hvd::Error::from_errno("read its standard input");
    }
  }
  return text.substr(0, text.find(end));
}

hvd::Result<std::string> read_first_line() {
  return read_input_until("\n", hvd::launch::kLongestOrder);
}

hvd::Result<int> call_at(const std::string& engine, const hvd::launch::CallPlace& place, hvd::Log& log) {
  hvd::launch::AgentOptions options;
  options.environment = own_environment();
  hvd::launch::CallKey key;
  if (hvd::launch::has_order(engine)) {
    HVD_TRY_ASSIGN(const std::string line, read_first_line());
    HVD_TRY_ASSIGN(const hvd::launch::CallOrder order, hvd::launch::parse_order(line));
    key = order.key;
    options.seat = order.seat;
    options.has_leash = true;
  } else {
    if (hvd::launch::has_key_at_input(engine)) {
      HVD_TRY_ASSIGN(const std::string line, read_first_line());
      HVD_TRY_ASSIGN(key, hvd::launch::parse_call_key(line));
    } else {
      HVD_TRY_ASSIGN(key, take_key(options.environment));
    }
    HVD_TRY_ASSIGN(options.seat, hvd::launch::seat_from(engine, options.environment));
    options.node_name = hvd::launch::node_name_from(engine, options.environment);
    hvd::launch::leave_engine(engine, options.environment);
  }
  const int rank = options.seat.rank;
  const auto call = [&] { return hvd::launch::dial_launcher(place, key, rank, hvd::Deadline::after(kDialTime)); };
  return run_agent(options, [&] { return dial(call); }, true, log);
}

// PodWords is what a manifest tells the agent in a pod.
struct PodWords {
  std::string key_file;
  double start_timeout_s = 60;
  std::string launcher;
};

hvd::Result<PodWords> parse_pod_words(const std::vector<std::string>& words) {
  PodWords pod;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const bool has_value = i + 1 < words.size();
    if (words[i] == "--key-file" && has_value) {
      pod.key_file = words[++i];
    } else if (words[i] == "--start-timeout" && has_value) {
      const auto seconds = hvd::parse_number<double>(words[++i], 0.1, 1e6);
      if (!seconds) {
        return hvd::Error(hvd::Code::kInvalid, "--start-timeout '" + words[i] + "': expected seconds, 0.1 to 1e6");
      }
      pod.start_timeout_s = *seconds;
    } else if (!words[i].starts_with('-') && pod.launcher.empty()) {
      pod.launcher = words[i];
    } else {
      return hvd::Error(hvd::Code::kInvalid, "'" + words[i] + "' is one word too many, or lacks its value");
    }
  }
  if (pod.key_file.empty() || pod.launcher.empty()) {
    return hvd::Error(hvd::Code::kInvalid,
                      "expected: hvdrun-agent call kubernetes --key-file FILE [--start-timeout S] HOST:PORT");
  }
  return pod;
}

// Calls a launcher that is known by its name.
hvd::Result<int> call_by_name(const std::string& engine, const PodWords& pod, hvd::Log& log) {
  hvd::launch::AgentOptions options;
  options.environment = own_environment();
  HVD_TRY_ASSIGN(const hvd::JobSecret secret, hvd::launch::read_call_secret(pod.key_file));
  HVD_TRY_ASSIGN(const hvd::launch::LauncherName name, hvd::launch::parse_launcher_name(pod.launcher));
  HVD_TRY_ASSIGN(options.seat, hvd::launch::seat_from(engine, options.environment));
  const hvd::Deadline deadline = hvd::Deadline::after(
      std::chrono::duration_cast<hvd::Duration>(std::chrono::duration<double>(pod.start_timeout_s)));
  const auto call = [&, rank = options.seat.rank] {
    return hvd::launch::dial_by_name(name, secret, rank, deadline,
                                     [&log](const std::string& line) { log.write(hvd::LogLevel::kInfo, line); });
  };
  return run_agent(options, [&] { return dial(call); }, true, log);
}

// Runs `call ENGINE ...`. Kubernetes' words are wiped out of what /proc shows of this process and its children, since
// ranks are not to know where the key is.
hvd::Result<int> call(const std::vector<std::string>& words, char** argv, hvd::Log& log) {
  if (!hvd::launch::has_secret_file(words[1])) {
    return call_at(words[1], {words[2], {words.begin() + 3, words.end()}}, log);
  }
  HVD_TRY_ASSIGN(const PodWords pod, parse_pod_words({words.begin() + 2, words.end()}));
  for (std::size_t i = 2; i < words.size(); ++i) {
    ::explicit_bzero(argv[1 + i], words[i].size());
  }
  return call_by_name(words[1], pod, log);
}

// The file's text stands at standard input, up to an empty line. Later the end of this input means that the task which
// started the agent is over.
hvd::Result<hvd::launch::JoinFile> read_given_join_file() {
  HVD_TRY_ASSIGN(const std::string text, read_input_until("\n\n", hvd::launch::kLongestJoinFile));
  auto file = hvd::launch::parse_join_file(text + "\n");
  return file.ok() ? std::move(file)
                   : hvd::Result<hvd::launch::JoinFile>(
                         hvd::Error(hvd::Code::kInvalid, "standard input: " + file.error().message()));
}

// Joins the job of a file, with so many slots; 0: as many as there are GPUs, or one. The file is checked by `hvdrun
// join`, which becomes this; it may have changed since. "-": the task of an engine gives its text.
hvd::Result<int> join(const std::string& path, const std::string& slots, hvd::Log& log) {
  const bool is_given = path == "-";
  HVD_TRY_ASSIGN(const hvd::launch::JoinFile file,
                 is_given ? read_given_join_file() : hvd::launch::read_join_file(path));
  if (file.version != HVD_VERSION) {
    return hvd::Error(hvd::Code::kInvalid, (is_given ? "what stands at standard input" : path) + " is of hvdrun " +
                                               file.version + ", and this is " HVD_VERSION "; both must be the same");
  }
  hvd::launch::AgentOptions options;
  options.joins = true;
  options.has_leash = is_given;
  options.slots = hvd::parse_number<int>(slots, 0, hvd::launch::kMostJoinSlots).value_or(0);
  options.environment = own_environment();
  if (!hvd::launch::value_in(options.environment, "SLURM_PROCID").empty()) {
    options.node_name = hvd::launch::node_name_from("slurm", options.environment);
    hvd::launch::leave_engine("slurm", options.environment);
  }
  const auto call = [&]() -> hvd::Result<hvd::launch::DialedLauncher> {
    auto dialed =
        hvd::launch::dial_launcher(file.place, file.key, 0, hvd::Deadline::after(kDialTime),
                                   "has the job ended, or is a firewall between this host and the one where it runs?");
    return dialed.ok()
               ? std::move(dialed)
               : hvd::Result<hvd::launch::DialedLauncher>(hvd::Error(
                     hvd::Code::kUnreachable, "cannot join job " + file.job_id + ": " + dialed.error().message()));
  };
  return run_agent(options, [&] { return dial(call); }, true, log);
}

// Prints a line for each folder that stays, which hvdrun reports. The code is 0 even then: a failure would end the
// clean-up job, and with it the removal on other nodes.
int remove_folders(const std::vector<std::string>& folders) {
  for (const std::string& folder : folders) {
    if (const auto removed = hvd::launch::remove_tree(folder); !removed.ok()) {
      std::cout << removed.error().message() << "\n";
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  hvd::occupy_standard_streams();
  hvd::restore_child_signal();
  hvd::init_lean_crypto();
  const std::vector<std::string> words(argv + 1, argv + argc);
  hvd::StderrLog log(hvd::LogLevel::kInfo, "hvdrun-agent");
  if (words == std::vector<std::string>{"--version"}) {
    std::cout << "hvdrun-agent " << HVD_VERSION << "\n";
    return 0;
  }
  if (words == std::vector<std::string>{"serve"}) {
    hvd::launch::AgentOptions options;
    options.environment = own_environment();
    const auto standard = [] { return hvd::Result<Session>(Session{Fd(STDIN_FILENO), Fd(STDOUT_FILENO), nullptr}); };
    return run_agent(options, standard, false, log);
  }
  if (words.size() >= 4 && words.front() == "call") {
    const auto code = call(words, argv, log);
    if (!code.ok()) {
      log.write(hvd::LogLevel::kError, code.error().message());
    }
    return code.ok() ? code.value() : 1;
  }
  if (words.size() == 3 && words.front() == "join") {
    hvd::StderrLog own_log(hvd::LogLevel::kInfo, "hvdrun");
    const auto code = join(words[1], words[2], own_log);
    if (!code.ok()) {
      own_log.write(hvd::LogLevel::kError, code.error().message());
    }
    return code.ok() ? code.value() : hvd::launch::exit_code::kUsage;
  }
  if (words.size() >= 2 && words.front() == "remove") {
    return remove_folders({words.begin() + 1, words.end()});
  }
  if (!words.empty() && words.front() == hvd::bench::kRankWord) {
    return hvd::bench::run_bench_rank(words);
  }
  std::cerr << "usage: hvdrun-agent serve | call ENGINE STACK ADDRESS... | call kubernetes --key-file FILE HOST:PORT | "
               "join FILE|- SLOTS | remove FOLDER...   (started by hvdrun or a manifest; not by hand)\n";
  return 2;
}

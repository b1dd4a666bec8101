// How a node's ranks begin: what each is given, and what is found out before the first one starts.
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <string_view>

#include "launcher/agent/agent_core.h"
#include "launcher/process/spawn.h"
#include "launcher/survey/script_check.h"
#include "runtime/base/open_files.h"

namespace hvd::launch {
namespace {

// Of each rank: the two pipes of its output, and its runtime's connection. One that is given input has a pipe for it.
constexpr std::uint64_t kFilesOfRank = 3;
// For what is opened while one is started, and for visitors.
constexpr std::uint64_t kFilesToSpare = 16;

}  // namespace

Result<void> AgentCore::on_start(const Frame& frame) {
  HVD_TRY_ASSIGN(const StartMessage start, StartMessage::decode(frame.body));
  if (has_started_ || is_stopping_) {
    return {};  // a stop may overtake the decision to start
  }
  has_started_ = true;
  may_restart_ = start.may_restart;
  cwd_ = start.cwd;
  const std::string script = python_script_of(start.argv);
  struct stat info{};
  const std::string path = script.empty() || script.front() == '/' ? script : start.cwd + "/" + script;
  if (!script.empty() && ::stat(path.c_str(), &info) != 0) {
    const Error why = Error::from_errno("no such script: '" + path + "'");
    send(AgentMessage::kStartFailed, StartFailedMessage{start.ranks.front().rank, why}.encode());
    return {};
  }
  reserved_port_.reset();
  if (const auto written = write_hostfile(start.hostfile); !written.ok()) {
    send(AgentMessage::kProblem, written.error().message());  // few look at it
  }
  for (const auto& [name, text] : start.files) {
    if (const auto written = write_file(name, text); !written.ok()) {
      send(AgentMessage::kStartFailed, StartFailedMessage{start.ranks.front().rank, written.error()}.encode());
      return {};
    }
  }
  if (const auto allowed = allow_files_for(start); !allowed.ok()) {
    send(AgentMessage::kStartFailed, StartFailedMessage{start.ranks.front().rank, allowed.error()}.encode());
    return {};
  }
  for (const StartMessage::Rank& rank : start.ranks) {
    if (auto started = start_rank(start, rank); !started.ok()) {
      send(AgentMessage::kStartFailed, StartFailedMessage{rank.rank, started.error()}.encode());
      return {};  // the launcher stops what runs already; one report per cause, not one per rank
    }
  }
  if (start.input_window > 0) {
    send(AgentMessage::kInputCredit, count_body(start.input_window));
  }
  return {};
}

Result<void> AgentCore::write_hostfile(const std::string& text) const {
  const std::string path = hostfile_beside(options_.scratch_dir + "/agent");
  std::ofstream file(path);
  if (text.empty() || (file << text).flush()) {
    return {};
  }
  return Error::from_errno("cannot write '" + path + "', which HVDRUN_HOSTFILE names");
}

Result<void> AgentCore::write_file(const std::string& name, const std::string& text) const {
  const std::string path = options_.scratch_dir + "/" + name;
  const Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600));
  std::string_view rest = text;
  while (file.is_open()) {
    if (rest.empty()) {
      return {};
    }
    const ssize_t written = ::write(file.get(), rest.data(), rest.size());
    if (written < 0 && errno != EINTR) {
      break;
    }
    rest.remove_prefix(static_cast<std::size_t>(std::max<ssize_t>(written, 0)));
  }
  return Error::from_errno("cannot write '" + path + "', which the rank is to run; set TMPDIR there to where space is");
}

// All or none are started: the last of a hundred ranks is no place to find out that there are too few.
Result<void> AgentCore::allow_files_for(const StartMessage& start) {
  ranks_open_files_ = open_files_limit();  // ours is not theirs
  const std::size_t ranks = start.ranks.size();
  const auto readers = static_cast<std::uint64_t>(
      std::count_if(start.ranks.begin(), start.ranks.end(), [](const auto& rank) { return rank.reads_input; }));
  const auto allowed = allow_open_files(count_open_files() + ranks * kFilesOfRank + readers + kFilesToSpare);
  return allowed.ok()
             ? allowed
             : Error(allowed.error().code(), "for " + std::to_string(ranks) + " ranks " + allowed.error().message() +
                                                 "; raise nofile in /etc/security/limits.conf there");
}

Result<void> AgentCore::start_rank(const StartMessage& start, const StartMessage::Rank& rank) {
  RankProcess::Sink sink;
  sink.allowance = [this] { return static_cast<std::size_t>(credit_); };
  sink.on_output = [this](int r, StreamId stream, std::string_view bytes) { take_output(r, stream, bytes); };
  sink.on_output_end = [this](int r, StreamId stream) {
    launcher_->send_frame(AgentMessage::kOutputEnd, output_end_frame(r, stream));
    // Later, since RankProcess is in the middle of its own work.
    loop_.post([this] {
      start_again();
      begin_sweep_if_finished();
    });
  };
  SpawnOptions options;
  options.argv = rank.argv.empty() ? start.argv : rank.argv;
  options.environment = environment_of(start, rank);
  options.cwd = start.cwd;
  options.cpus = rank.cpus;
  options.open_files = ranks_open_files_;
  Fd input;
  if (rank.reads_input) {
    HVD_TRY_ASSIGN(input, input_.add_reader(rank.rank));
    options.stdin_fd = input.get();
  }
  auto process = RankProcess::start(loop_, rank.rank, std::move(options), std::move(sink));
  if (!process.ok()) {
    input_.drop(rank.rank);
    return process.error();
  }
  send(AgentMessage::kStarted, number_body(rank.rank, process.value()->pid()));
  ranks_.push_back(std::move(process).value());
  return {};
}

std::vector<std::string> AgentCore::environment_of(const StartMessage& start, const StartMessage::Rank& rank) const {
  std::map<std::string, std::string> merged;
  for (const std::string& entry : options_.environment) {
    const auto equals = entry.find('=');
    if (equals != std::string::npos) {
      merged[entry.substr(0, equals)] = entry.substr(equals + 1);
    }
  }
  for (const std::string& name : start.unset) {
    merged.erase(name);
  }
  for (const auto* list : {&start.env, &rank.env, &start.last}) {
    for (const auto& [name, value] : *list) {
      merged[name] = value;
    }
  }
  std::vector<std::string> environment;
  environment.reserve(merged.size());
  for (const auto& [name, value] : merged) {
    environment.push_back(name + "=" + value);
  }
  return environment;
}

}  // namespace hvd::launch

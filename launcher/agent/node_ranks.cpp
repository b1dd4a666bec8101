#include "launcher/agent/node_ranks.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <utility>

#include "launcher/post_mortem/core_file.h"
#include "launcher/process/descendants.h"
#include "launcher/process/spawn.h"
#include "launcher/survey/own_nccl_files.h"
#include "launcher/survey/own_system.h"
#include "launcher/survey/script_check.h"
#include "launcher/wire/host_run.h"
#include "runtime/base/contract.h"
#include "runtime/base/open_files.h"

namespace hvd::launch {
namespace {

// Of each rank: the two pipes of its output, and its runtime's connection. One that is given input has a pipe for it.
constexpr std::uint64_t kFilesOfRank = 3;
// For what is opened while one is started, and for visitors.
constexpr std::uint64_t kFilesToSpare = 16;
// A shell ends with this code or a higher one where a signal has ended its program.
constexpr int kFirstSignalCode = 128;

bool is_among(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

Result<void> write_hostfile(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  if (text.empty() || (file << text).flush()) {
    return {};
  }
  return Error::from_errno("cannot write '" + path + "', which HVDRUN_HOSTFILE names");
}

Result<void> write_file(const std::string& path, const std::string& text) {
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

// Makes the file by whose name a process sees that it is one of several ranks (contract::kRanksMark).
Fd ranks_mark(const StartMessage::Rank& rank) {
  const auto size =
      std::find_if(rank.env.begin(), rank.env.end(), [](const auto& entry) { return entry.first == contract::kSize; });
  const std::string name = contract::kRanksMark + (size == rank.env.end() ? std::string("0") : size->second);
  return Fd(::memfd_create(name.c_str(), MFD_CLOEXEC));
}

}  // namespace

NodeRanks::NodeRanks(EventLoop& loop, Node node, Sink sink)
    : loop_(loop), node_(std::move(node)), sink_(std::move(sink)), input_(loop, kInputWindow, input_sink()) {}

NodeRanks::~NodeRanks() = default;

void NodeRanks::start(const StartMessage& start) {
  cwd_ = start.cwd;
  mark_ = ranks_mark(start.ranks.front());
  // One report per cause, and not one per rank: the first rank stands for all.
  const auto refuse = [this](int rank, const Error& why, const std::string& place = "") {
    sink_.send(AgentMessage::kStartFailed, StartFailedMessage{rank, why, place}.encode());
  };
  const int first = start.ranks.front().rank;
  if (const auto missing = find_missing_place(start.argv, start.cwd)) {
    return refuse(first, missing->why, missing->path);
  }
  if (const auto written = write_hostfile(hostfile_beside(node_.scratch_dir + "/agent"), hostfile_text(start.hosts));
      !written.ok()) {
    sink_.send(AgentMessage::kProblem, written.error().message());  // few look at it
  }
  if (const auto written = write_files(start); !written.ok()) {
    return refuse(first, written.error());
  }
  if (const auto allowed = allow_files_for(start); !allowed.ok()) {
    return refuse(first, allowed.error());
  }
  for (const StartMessage::Rank& rank : start.ranks) {
    if (auto started = start_rank(start, rank); !started.ok()) {
      return refuse(rank.rank, started.error());
    }
  }
  if (start.input_window > 0) {
    sink_.send(AgentMessage::kInputCredit, count_body(start.input_window));
  }
}

Result<void> NodeRanks::write_files(const StartMessage& start) const {
  for (const auto& [name, text] : start.files) {
    HVD_TRY(write_file(node_.scratch_dir + "/" + name, text));
  }
  return {};
}

// All or none are started: the last of a hundred ranks is no place to find out that there are too few.
Result<void> NodeRanks::allow_files_for(const StartMessage& start) {
  ranks_open_files_ = open_files_limit();  // ours is not theirs
  const std::size_t ranks = start.ranks.size();
  const auto readers = static_cast<std::uint64_t>(
      std::count_if(start.ranks.begin(), start.ranks.end(), [](const auto& rank) { return rank.reads_input; }));
  const std::uint64_t others = count_open_files() + readers + kFilesToSpare;
  tells_order_ = allow_open_files(others + ranks * (kFilesOfRank + 1)).ok();
  const auto allowed = tells_order_ ? Result<void>() : allow_open_files(others + ranks * kFilesOfRank);
  return allowed.ok()
             ? allowed
             : Error(allowed.error().code(), "for " + std::to_string(ranks) + " ranks " + allowed.error().message() +
                                                 "; raise nofile in /etc/security/limits.conf there");
}

Result<void> NodeRanks::start_rank(const StartMessage& start, const StartMessage::Rank& rank) {
  RankProcess::Sink sink;
  sink.allowance = [this] { return static_cast<std::size_t>(credit_); };
  sink.on_output = [this](int r, StreamId stream, std::string_view bytes) { take_output(r, stream, bytes); };
  sink.on_output_end = [this](int r, StreamId stream) {
    sink_.send_frame(AgentMessage::kOutputEnd, output_end_frame(r, stream));
    // Later, since RankProcess is in the middle of its own work.
    loop_.post([this] {
      start_again();
      sink_.on_finished();
    });
  };
  SpawnOptions options;
  options.argv = rank.argv.empty() ? start.argv : rank.argv;
  options.environment = environment_of(node_.environment, own_nccl_names(node_.environment), start, rank);
  options.cwd = start.cwd;
  options.cpus = rank.cpus;
  options.open_files = ranks_open_files_;
  options.is_readable_by_parent = true;
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
  if (tells_order_) {
    deaths_.watch(process.value()->pid());
  }
  sink_.send(AgentMessage::kStarted, number_body(rank.rank, process.value()->pid()));
  ranks_.push_back(std::move(process).value());
  sink_.on_began(rank.rank);
  return {};
}

void NodeRanks::restart(StartMessage start) {
  again_.push_back(std::move(start));
  start_again();
}

void NodeRanks::start_again() {
  for (auto waiting = again_.begin(); waiting != again_.end();) {
    const int rank = waiting->ranks.front().rank;
    const auto last = std::find_if(ranks_.begin(), ranks_.end(), [rank](const auto& p) { return p->rank() == rank; });
    if (last != ranks_.end() && !(*last)->is_finished()) {
      end_orphans_of(**last);  // they may be what holds its pipes open
      ++waiting;
      continue;
    }
    if (last != ranks_.end()) {
      end_orphans_of(**last);
    }
    const auto old = last != ranks_.end() ? last - ranks_.begin() : std::ptrdiff_t{-1};
    const StartMessage start = std::move(*waiting);
    waiting = again_.erase(waiting);
    if (auto started = start_rank(start, start.ranks.front()); !started.ok()) {
      // Its last process stays, so that its end is told: without it the node would never be done.
      sink_.send(AgentMessage::kStartFailed, StartFailedMessage{rank, started.error()}.encode());
    } else if (old >= 0) {
      ranks_.erase(ranks_.begin() + old);
    }
  }
}

void NodeRanks::end_orphans_of(const RankProcess& process) const {
  if (!process.has_exited()) {
    return;
  }
  // A rank leads its process group, and what it leaves comes to this process as to a subreaper.
  std::vector<pid_t> orphans = left_behind();
  std::erase_if(orphans, [&process](pid_t pid) { return ::getpgid(pid) != process.pid(); });
  signal_children(orphans, SIGKILL);
}

std::vector<pid_t> NodeRanks::left_behind() const {
  std::vector<pid_t> left = children_of_job();
  std::erase_if(left, [this](pid_t pid) { return sink_.is_of_others(pid); });
  return left;
}

bool NodeRanks::is_nothing_left() const {
  if (!sink_.are_others_idle()) {
    return left_behind().empty();
  }
  siginfo_t none{};  // mostly there is no child at all, which takes no look at all of /proc
  return (::waitid(P_ALL, 0, &none, WEXITED | WNOHANG | WNOWAIT) != 0 && errno == ECHILD) || left_behind().empty();
}

TimePoint NodeRanks::grace_ends() const {
  TimePoint last{};
  for (const auto& rank : ranks_) {
    last = std::max(last, rank->grace_ends());
  }
  return last;
}

bool NodeRanks::was_told(pid_t left) const {
  return std::any_of(ranks_.begin(), ranks_.end(), [left](const auto& rank) { return rank->has_told(left); });
}

// A second SIGTERM would end many a program that is about to save its state.
void NodeRanks::act(const agent_action::SignalLeft& action) const {
  std::vector<pid_t> left = action.pids;
  if (action.signo != SIGKILL) {
    std::erase_if(left, [this](pid_t pid) { return was_told(pid); });
  }
  signal_children(left, action.signo);
}

void NodeRanks::act(const agent_action::EndDrains&) {
  for (const auto& rank : ranks_) {
    rank->end_drain();
  }
}

void NodeRanks::act(const agent_action::ForgetRestarts&) {
  again_.clear();
}

void NodeRanks::signal(int signo) const {
  for (const auto& rank : ranks_) {
    rank->signal_group(signo);
  }
}

void NodeRanks::act(const agent_action::StopRanks& action) {
  for (const auto& rank : ranks_) {
    if (std::find(action.spared.begin(), action.spared.end(), rank->rank()) == action.spared.end()) {
      rank->stop(action.signo, action.grace);
    }
  }
}

void NodeRanks::end_rank(int number, int signo) {
  const auto is_it = [number](const StartMessage& start) { return start.ranks.front().rank == number; };
  if (std::erase_if(again_, is_it) > 0) {
    const Error why(Code::kCancelled, "it was told to end before it was started again");
    sink_.send(AgentMessage::kStartFailed, StartFailedMessage{number, why}.encode());
  }
  for (const auto& rank : ranks_) {
    if (rank->rank() == number) {
      rank->signal_group(signo);
    }
  }
}

std::vector<std::pair<int, pid_t>> NodeRanks::running() const {
  std::vector<std::pair<int, pid_t>> running;
  for (const auto& process : ranks_) {
    if (!process->has_exited()) {
      running.emplace_back(process->rank(), process->pid());
    }
  }
  return running;
}

// The kernel gives the number of a rank that has ended to another process.
std::optional<int> NodeRanks::rank_of(pid_t pid) const {
  const auto found = std::find_if(ranks_.begin(), ranks_.end(),
                                  [pid](const auto& rank) { return rank->pid() == pid && !rank->has_exited(); });
  return found == ranks_.end() ? std::nullopt : std::optional((*found)->rank());
}

void NodeRanks::on_exited(pid_t pid, ExitStatus status, bool is_stopping) {
  const auto found = std::find_if(ranks_.begin(), ranks_.end(),
                                  [pid](const auto& rank) { return rank->pid() == pid && !rank->has_exited(); });
  if (found == ranks_.end()) {
    return;
  }
  deaths_.forget(pid);
  const ExitDetail detail = explain(pid, status, is_stopping);
  (*found)->mark_exited(status);
  input_.drop((*found)->rank());
  sink_.send(AgentMessage::kExited, ExitedMessage{(*found)->rank(), status, detail}.encode());
}

void NodeRanks::each_ended(const std::function<void(const RankProcess&)>& tell) const {
  for (const auto& rank : ranks_) {
    if (rank->is_finished() || (rank->has_exited() && rank->was_told())) {
      tell(*rank);
    }
  }
}

ExitDetail NodeRanks::explain(pid_t pid, ExitStatus& status, bool is_stopping) {
  ExitDetail detail;
  if (status.has_core) {
    detail.core = find_core({pid, status.value, cwd_, node_.host_name});
  }
  // A shell tells of a child that was killed so by its own code. Once we stop the ranks, the signal is ours.
  if (status.shell_code() == 128 + SIGKILL && !is_stopping) {
    OomWatch::Finding finding = oom_watch_.look(pid);
    status.out_of_memory =
        status.kind == ExitStatus::Kind::kSignalled && finding.verdict == OomWatch::Verdict::kCertain;
    detail.memory = std::move(finding.evidence);
  } else if (status.kind == ExitStatus::Kind::kExited && status.value > 0 && status.value < kFirstSignalCode) {
    detail.memory = oom_watch_.evidence_of_any();  // as where a process is gone that loads its data
  }
  return detail;
}

void NodeRanks::take_output(int rank, StreamId stream, std::string_view bytes) {
  if (is_drained_) {
    return;
  }
  credit_ -= bytes.size();
  sink_.send_frame(AgentMessage::kOutput, output_frame(rank, stream, bytes));
}

void NodeRanks::on_credit(std::uint64_t bytes) {
  credit_ += bytes;
  for (const auto& rank : ranks_) {
    rank->resume();
  }
}

void NodeRanks::drain() {
  is_drained_ = true;
  credit_ = UINT64_MAX / 2;
  on_credit(0);
}

InputFeed::Sink NodeRanks::input_sink() {
  InputFeed::Sink sink;
  sink.on_taken = [this](std::uint64_t bytes) { sink_.send(AgentMessage::kInputCredit, count_body(bytes)); };
  sink.on_over = [this] { sink_.send(AgentMessage::kInputOver, ""); };
  return sink;
}

std::vector<std::string> environment_of(const std::vector<std::string>& own, const std::vector<std::string>& settled,
                                        const StartMessage& start, const StartMessage::Rank& rank) {
  std::map<std::string, std::string> merged;
  for (const std::string& entry : own) {
    const auto equals = entry.find('=');
    if (equals != std::string::npos) {
      merged[entry.substr(0, equals)] = entry.substr(equals + 1);
    }
  }
  for (const std::string& name : start.unset) {
    merged.erase(name);
  }
  if (start.cwd.starts_with('/')) {
    merged["PWD"] = start.cwd;  // the agent's own is of the folder in which it was started, as of a login
  }
  for (const auto& [name, value] : start.env) {
    merged[name] = value;
  }
  for (const auto& [name, value] : rank.env) {
    const bool gives_way = is_among(start.proposed, name) && (merged.contains(name) || is_among(settled, name));
    if (!gives_way) {
      merged[name] = value;
    }
  }
  for (const auto& [name, value] : start.last) {
    merged[name] = value;
  }
  std::vector<std::string> environment;
  environment.reserve(merged.size());
  for (const auto& [name, value] : merged) {
    environment.push_back(name + "=" + value);
  }
  return environment;
}

}  // namespace hvd::launch

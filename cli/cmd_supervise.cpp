// This is the process of one job of the service, from its submission to its end.
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <thread>

#include "cli/commands.h"
#include "cli/options/job_file_settings.h"
#include "cli/options/job_settings.h"
#include "cli/service_commands.h"
#include "launcher/job/hidden_texts.h"
#include "launcher/logs/rank_files.h"
#include "launcher/process/descendants.h"
#include "launcher/process/own_process.h"
#include "launcher/service/granted_nodes.h"
#include "launcher/service/loop_writes.h"
#include "launcher/service/supervisor.h"
#include "launcher/service/ticket.h"
#include "launcher/state/exit_codes.h"
#include "launcher/steps/file_job.h"
#include "launcher/transport/local.h"
#include "launcher/transport/transport_choice.h"
#include "runtime/base/machine.h"

namespace hvd::cli {
namespace {

using namespace hvd::launch;  // NOLINT(google-build-using-namespace): this file is the launcher's front

// An agent that cannot tell a dead launcher from a dead network waits for the whole reconnect timeout and this. An
// agent on this machine, whose connection cannot break, waits for a fourth of it (agent_session.cpp).
constexpr auto kAgentSlack = std::chrono::seconds(6);
constexpr int kLocalPart = 4;
constexpr std::size_t kMostDetails = 4096;
// While the disk is full, the job's end cannot be recorded; it is retried for this long.
constexpr auto kTimeToWriteEnd = std::chrono::minutes(10);
constexpr auto kBetweenTries = std::chrono::seconds(1);
// An installation removes the old files some time before the new ones are there.
constexpr auto kLongestInstallation = std::chrono::minutes(10);
constexpr const char* kWrongWay =
    "The job has reached none of its nodes, and the nodes are not at fault; are its keys, --rsh, ssh configuration and "
    "--start-timeout right? hvdrun check with the same flags says more";

std::string last_words(const std::string& file) {
  std::ifstream stream(file, std::ios::binary | std::ios::ate);
  if (!stream) {
    return "";
  }
  const auto size = static_cast<std::size_t>(stream.tellg());
  const std::size_t from = size - std::min(size, kMostDetails);
  stream.seekg(static_cast<std::streamoff>(from));
  std::ostringstream text;
  text << stream.rdbuf();
  std::string words = std::move(text).str();
  return from == 0 ? words : words.substr(std::min(words.find('\n'), words.size() - 1) + 1);
}

class SupervisedJob final : public FileJobObserver {
 public:
  SupervisedJob(ServicePlace& place, JobRecord record)
      : place_(place), record_(std::move(record)), writes_(place.store, record_.id) {}

  RecordedEnd run() {
    HVD_CHECK(record_.max_nodes > 0 || record_.nodes.size() == static_cast<std::size_t>(record_.node_count));
    auto code = run_to_end();
    if (!code.ok()) {
      const std::string why = masked(code.error().message(), options_.job.hidden);
      std::cerr << "hvdrun: " << why << "\n";
      return failed(exit_code_of(code.error()), "JobLaunchFailed", why);
    }
    return end_of(code.value());
  }

  Result<void> on_output(const std::string& directory, const JobRun& run) override {
    first_size_ = first_size_ == 0 ? run.layout.size() : first_size_;
    const std::string own = (std::filesystem::path(options_.job.cwd) / options_.job.output_dir).string();
    std::vector<std::string> files;
    for (int rank = 0; rank < run.layout.size(); ++rank) {
      files.push_back(options_.job.output_dir.empty() ? directory + "/" + process_file(run, rank, false)
                                                      : own + "/" + rank_folder(rank, first_size_) + "/stdout");
    }
    if (phase_ == Phase::kStarted) {  // the loop of the running job calls
      writes_.set_output(directory, std::move(files));
      return {};
    }
    return patiently([&] { return place_.store.set_output(record_.id, directory, files); });
  }

  Result<void> on_preparing() override {
    HVD_TRY(tell(Phase::kPreparing));
    writes_.begin();
    return {};
  }
  [[nodiscard]] bool keeps_page_private() const override {
    return options_.job.page == place_.dir.page_of(record_.uuid);
  }
  Result<void> on_ranks() override {
    end_writes();
    HVD_TRY(tell(Phase::kStarted));
    writes_.begin();
    return {};
  }

  void on_nodes(const JobLayout& layout, const std::vector<JobNodeFacts>& facts) override {
    std::vector<JobNode> nodes;
    for (std::size_t i = 0; i < facts.size(); ++i) {
      nodes.push_back({layout.nodes[i].name, facts[i].address});
      has_logged_in_ = has_logged_in_ || (!facts[i].address.empty() && !is_here(layout.nodes[i]));
    }
    writes_.set_addresses(std::move(nodes), has_logged_in_);
  }

  void on_unreached(const Unreached& unreached) override {
    unreached_ = unreached;
    unreached_.has_reached_one = unreached_.has_reached_one || has_logged_in_;
  }

  // Returns the hosts that could not be reached, or were lost, before any process of the job began.
  [[nodiscard]] const Unreached& unreached() const { return unreached_; }

  void on_interrupted() override { is_interrupted_ = true; }
  // Returns true if a signal has ended the job, or would have soon.
  [[nodiscard]] bool is_interrupted() const { return is_interrupted_ || is_told_to_stop(); }
  void on_failed_rank() override { has_failed_rank_ = true; }
  [[nodiscard]] bool has_started() const { return phase_ == Phase::kStarted; }

  void on_lost(const std::vector<std::string>& hosts) override { lost_ = hosts; }
  [[nodiscard]] const std::vector<std::string>& lost() const { return lost_; }

  std::unique_ptr<HostSource> host_source(EventLoop& loop) override {
    if (record_.max_nodes == 0) {
      return nullptr;
    }
    writes_.retry_on(loop);
    const HostList& first = options_.file->layout.nodes;
    for (HostSpec& host : cluster_hosts_) {
      host.slots = first.front().slots;
    }
    return std::make_unique<GrantedNodes>(loop, place_.dir, place_.store, record_.id, cluster_hosts_, first);
  }

 private:
  // A disk that is full for a while, or another process that holds the records, is no end of a job that has not begun.
  template <typename Write>
  static Result<void> patiently(const Write& write) {
    const Deadline deadline = Deadline::after(kTimeToWriteEnd);
    for (bool is_told = false;; is_told = true) {
      Result<void> written = write();
      if (written.ok() || written.error().code() != Code::kResource || deadline.has_passed() || is_told_to_stop()) {
        return written;
      }
      if (!is_told) {
        std::cerr << "hvdrun: the job waits to write its record: " << written.error().message() << "\n";
      }
      std::this_thread::sleep_for(kBetweenTries);
    }
  }

  // The addresses are only for `nodes`, and the files for `logs`, so an error is no reason to fail the job.
  void end_writes() {
    if (const auto written = writes_.end(); !written.ok()) {
      std::cerr << "hvdrun: where its ranks and their files are is not in the job's record: "
                << written.error().message() << "\n";
    }
  }

  // The signals are blocked until the ranks are started.
  static bool is_told_to_stop() {
    sigset_t waiting;
    ::sigpending(&waiting);
    return ::sigismember(&waiting, SIGTERM) == 1 || ::sigismember(&waiting, SIGINT) == 1 ||
           ::sigismember(&waiting, SIGHUP) == 1;
  }

  Result<void> tell(Phase phase) {
    HVD_TRY(patiently([&] { return place_.store.set_phase(record_.id, phase); }));
    phase_ = phase;
    place_.dir.wake();
    return {};
  }

  // Reads the words of the job's submission again, for the nodes that it has now.
  Result<void> read_ticket_of_job() {
    HVD_TRY_ASSIGN(const Ticket ticket, read_ticket(place_.dir.ticket_of(record_.uuid)));
    ::umask(ticket.umask);
    if (::chdir(ticket.cwd.c_str()) != 0) {
      return Error::from_errno("cannot enter " + ticket.cwd + ", from where the job was submitted");
    }
    HVD_TRY_ASSIGN(Flags flags, parse_submit_words(ticket.words));
    flags.json = false;  // it was for what submit printed
    flags.job_file = ticket.file;
    flags.job_text = ticket.text;
    flags.job_uuid = record_.uuid;
    flags.job_name = record_.name;
    HVD_TRY_ASSIGN(const ClusterRecord cluster, place_.store.clusters().find(record_.cluster));
    HostList hosts;
    for (const JobNode& node : record_.nodes) {
      const auto& all = cluster.cluster.hosts;
      const auto host =
          std::find_if(all.begin(), all.end(), [&node](const HostSpec& h) { return h.name == node.name; });
      if (host == all.end()) {
        return Error(Code::kInternal, "the cluster " + record_.cluster + " has no node " + node.name);
      }
      hosts.push_back(*host);
    }
    cluster_hosts_ = cluster.cluster.hosts;
    HVD_TRY(apply_cluster(cluster.cluster, hosts, flags));
    return read_job_file_flags(flags, options_);
  }

  // Each job has a page. One that cannot be kept is told by who writes it, and harms nothing.
  void keep_page() {
    const std::string path = place_.dir.page_of(record_.uuid);
    if (options_.job.page.empty()) {
      options_.job.page = path;
      return;
    }
    const std::string& wanted = options_.job.page;
    const std::string target = wanted.front() == '/' ? wanted : options_.job.cwd + "/" + wanted;
    std::error_code ignored;
    std::filesystem::create_symlink(target, path, ignored);
  }

  Result<int> run_to_end() {
    HVD_TRY(read_ticket_of_job());
    keep_page();
    options_.job.shows_ranks = false;
    options_.job.color = {};
    options_.job.live = false;
    options_.job.input = InputMode::kNone;
    // If ranks share a file, each rank gets one of its own as well, for `logs --rank`.
    const JobRun& run = *options_.file;
    const bool shares_files =
        record_.max_nodes > 1 || (run.layout.size() > 1 && process_file(run, 0, false) == process_file(run, 1, false));
    if (options_.job.output_dir.empty() && shares_files) {
      options_.job.output_dir = place_.dir.run_of(record_.uuid);
      options_.job.tags = false;
    }
    const HostList& nodes = record_.max_nodes > 0 ? cluster_hosts_ : run.layout.nodes;  // all that it may have
    const bool is_local = std::all_of(nodes.begin(), nodes.end(), [](const HostSpec& h) { return is_here(h); });
    const Duration patience = options_.job.reconnect_timeout;
    const Duration leaving = (is_local ? patience / kLocalPart : patience) + options_.job.grace + kAgentSlack;
    HVD_TRY(patiently([&] {
      return place_.store.set_leaving_time(
          record_.id, std::chrono::duration_cast<std::chrono::milliseconds>(leaving).count(), is_local);
    }));
    auto code = run_file_job({options_.job, *options_.file, options_.notices, state_root()}, this);
    end_writes();
    return code;
  }

  [[nodiscard]] RecordedEnd failed(int status, const std::string& code, const std::string& message) const {
    return {ExecutionState::kFailed,
            std::nullopt,
            status,
            {code, message, last_words(place_.dir.run_of(record_.uuid) + "/hvdrun.log")}};
  }

  [[nodiscard]] RecordedEnd end_of(int status) const {
    if (status == 0) {
      return {ExecutionState::kSucceeded, 0, 0, {}};
    }
    // A program may have any exit code, also one of hvdrun's. But with kSetUpFailed hvdrun's part of a script ends.
    if (has_failed_rank_ && status != kSetUpFailed) {
      return end_of_program(status);
    }
    if (status == exit_code::kTimedOut && options_.job.timeout > Duration::zero()) {
      return failed(status, "MaxWallClockTimeExpiry", "The job has run for longer than it may");
    }
    if (status == kSetUpFailed && phase_ != Phase::kStarted) {
      return failed(status, "JobSetUpFailed", "A node could not be set up for the job");
    }
    if (status == exit_code::kUnreachable && !unreached_.hosts.empty()) {
      const std::string& host = unreached_.hosts.front().name;
      return failed(status, "JobLaunchFailed",
                    "A node could not be reached: " + host + "; hvdrun check -H " + host + " says more");
    }
    if (status == exit_code::kOutputFailed) {
      return failed(status, "OutputNotKept", "The job ran, and not all that it printed could be kept");
    }
    if (status == exit_code::kResetLimit && options_.job.reset_limit) {
      return failed(status, "ResetLimitReached", "The ranks have changed more often than --reset-limit allows");
    }
    if (status >= exit_code::kUsage && status <= exit_code::kDefect) {
      return failed(status, "JobLaunchFailed", "The job could not be started, or its nodes were lost");
    }
    return end_of_program(status);
  }

  [[nodiscard]] RecordedEnd end_of_program(int status) const {
    RecordedEnd end = phase_ == Phase::kStarted ? failed(status, "JobFailed", "Job failed with non-zero exit code")
                                                : failed(status, "JobPreparationFailed",
                                                         "Job preparation task failed with non-zero exit code");
    end.exit_code = status;
    return end;
  }

  ServicePlace& place_;
  JobRecord record_;
  LoopWrites writes_;
  CliOptions options_;
  HostList cluster_hosts_;
  Unreached unreached_;
  bool has_logged_in_ = false;  // on another machine
  bool is_interrupted_ = false;
  bool has_failed_rank_ = false;
  std::vector<std::string> lost_;
  int first_size_ = 0;  // the names of ranks' folders have the digits for so many ranks
  Phase phase_ = Phase::kClaimed;
};

// SIG_BLOCK: holds signals back, so that a stop between two steps of the job is seen by the next step. SIG_UNBLOCK: no
// longer.
void hold_signals(int how) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signo : {SIGINT, SIGTERM, SIGHUP}) {
    sigaddset(&set, signo);
  }
  ::sigprocmask(how, &set, nullptr);
}

// Next says what the supervisor does after an attempt to run the job.
enum class Next : std::uint8_t {
  kNothing,      // it has ended
  kWait,         // as where a node could not be reached
  kInterrupted,  // it has ended because a signal told this process to end
  kLeave,        // so it does, and the job waits again, for another supervisor
};

// Records how an attempt ended. A signal that `hvdrun stop` has not sent tells every hvdrun to end, as where the
// machine is shut down. `has_put_back` is kept from one try to the next: what is known of the nodes must not be told
// twice.
Result<Next> settle(ServicePlace& place, std::int64_t id, const SupervisedJob& job, RecordedEnd& end,
                    bool& has_put_back) {
  if (!has_put_back && !job.unreached().hosts.empty()) {
    HVD_TRY_ASSIGN(const PutBack done, place.store.put_back(id, job.unreached()));
    has_put_back = true;
    if (done == PutBack::kWaits) {
      return Next::kWait;
    }
    end.error.message = done == PutBack::kIsWrong ? kWrongWay : end.error.message;
  }
  HVD_TRY_ASSIGN(const JobRecord now, place.store.job(id));
  const bool is_interrupted = job.is_interrupted() && now.state != ExecutionState::kTerminating;
  if (is_interrupted && !job.has_started()) {
    HVD_TRY(place.store.bury(id, boot_id()));
    return Next::kLeave;
  }
  HVD_TRY(place.store.end(id, end, job.lost()));
  return is_interrupted ? Next::kInterrupted : Next::kNothing;
}

// Runs the job once, on the nodes that it has.
Result<Next> run_once(ServicePlace& place, JobRecord record) {
  const std::int64_t id = record.id;
  hold_signals(SIG_BLOCK);
  place.dir.wake();
  SupervisedJob job(place, std::move(record));
  RecordedEnd end = job.run();
  const Deadline deadline = Deadline::after(kTimeToWriteEnd);
  bool has_put_back = false;
  Result<Next> next = settle(place, id, job, end, has_put_back);
  while (!next.ok() && !deadline.has_passed()) {
    std::cerr << "hvdrun: cannot write how the job ended, trying again: " << next.error().message() << "\n";
    std::this_thread::sleep_for(kBetweenTries);
    next = settle(place, id, job, end, has_put_back);
  }
  if (next.ok() && next.value() == Next::kWait) {
    std::cerr << "hvdrun: the job waits again\n";
    place.dir.wake();                      // its other nodes are idle
    static_cast<void>(::chdir("/") == 0);  // as at first: the job's own directory may go away meanwhile
    hold_signals(SIG_UNBLOCK);
  }
  return next;
}

// Renewal is for a job that has waited while another version of hvdrun was installed: the agents beside hvdrun are of
// that one now, so that it has to go on as that version.
class Renewal {
 public:
  Renewal(const ServicePlace& place, std::int64_t job, const Fd& lock) : place_(place), job_(job), lock_(lock) {}

  // Returns false while none is installed, as during an installation. Does not return where another version goes on.
  bool is_ready() {
    const OwnInstallation::State state = installation_.state();
    if (state == OwnInstallation::State::kGone) {
      if (!gone_until_) {
        gone_until_ = Deadline::after(kLongestInstallation);
        std::cerr << "hvdrun: " << installation_.path() << " is gone; the job waits for it\n";
      }
      return gone_until_->has_passed();
    }
    gone_until_.reset();
    if (state == OwnInstallation::State::kReplaced) {
      std::cerr << "hvdrun: another version was installed meanwhile, and goes on with this job\n";
      go_on_as_new();
    }
    return true;
  }

 private:
  // The new program takes the lock over as its standard input, as from start_supervisor().
  void go_on_as_new() const {
    std::string program = installation_.path();
    std::string word = kSuperviseWord;
    std::string root = place_.dir.root();
    std::string job = std::to_string(job_);
    std::array<char*, 5> argv = {program.data(), word.data(), root.data(), job.data(), nullptr};
    give_standard_input_back(lock_);
    ::signal(SIGPIPE, SIG_DFL);  // ignored since an earlier attempt
    ::signal(SIGXFSZ, SIG_DFL);
    ::execv(program.c_str(), argv.data());
    std::cerr << "hvdrun: " << Error::from_errno("cannot start " + program).message() << "\n";
    static_cast<void>(take_standard_input());
  }

  const ServicePlace& place_;
  const std::int64_t job_;
  const Fd& lock_;
  const OwnInstallation installation_;
  std::optional<Deadline> gone_until_;
};

}  // namespace

Result<int> supervise(const ServiceOptions& options) {
  // The lock comes as standard input, which programs started from here would inherit.
  HVD_TRY_ASSIGN(const Fd lock, take_standard_input());
  HVD_TRY_ASSIGN(ServicePlace place, ServicePlace::open_at(options.state_root));
  HVD_TRY_ASSIGN(const JobRecord job, place.store.job(options.id));
  Renewal renewal(place, options.id, lock);
  Result<Next> next(Next::kWait);
  while (next.ok() && next.value() == Next::kWait) {
    auto turn = wait_for_turn(place.dir, place.store, options.id, [&renewal] { return renewal.is_ready(); });
    if (!turn.ok()) {
      std::this_thread::sleep_for(kBetweenTries);  // limits how fast failing supervisors follow each other
      return turn.error();
    }
    next = turn.value() ? run_once(place, std::move(*turn.value())) : Result<Next>(Next::kNothing);
  }
  if (next.ok() && next.value() == Next::kLeave) {
    return 0;
  }
  if (next.ok()) {
    forget_start(place.dir, job.uuid);
  }
  place.dir.wake();
  if (next.ok() && next.value() == Next::kInterrupted) {
    return 0;  // the jobs that wait have got the same signal, and what was started for them now would be killed
  }
  HVD_TRY(recover(place.dir, place.store));
  return next.ok() ? Result<int>(0) : Result<int>(next.error());
}

}  // namespace hvd::cli

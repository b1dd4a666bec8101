#include "launcher/steps/file_job.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "launcher/engines/mpirun.h"
#include "launcher/jobfile/container_command.h"
#include "launcher/jobfile/job_run.h"
#include "launcher/jobfile/mount_command.h"
#include "launcher/process/exit_status.h"
#include "launcher/report/silent_reporter.h"
#include "launcher/report/step_reporter.h"
#include "launcher/state/exit_codes.h"
#include "launcher/steps/file_programs.h"
#include "launcher/steps/job_hosts.h"
#include "launcher/steps/job_step.h"
#include "launcher/steps/node_steps.h"
#include "launcher/steps/slurm_requeue.h"
#include "launcher/steps/step_engine.h"
#include "launcher/steps/step_log.h"
#include "launcher/steps/step_tree.h"
#include "launcher/transport/rank_limits.h"
#include "launcher/transport/transport_choice.h"

namespace hvd::launch {
namespace {

std::int64_t now_s() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

class FileJob {
 public:
  FileJob(FileJobSettings settings, FileJobObserver* observer, RunStep run_step)
      : notices_(std::move(settings.notices)),
        state_root_(std::move(settings.state_root)),
        observer_(observer),
        run_step_(std::move(run_step)),
        job_(std::move(settings.job)),
        run_(std::move(settings.run)) {}

  Result<int> run() {
    const auto began = std::chrono::steady_clock::now();
    if (job_.discovery.is_on()) {
      HVD_TRY(find_hosts());
    }
    ranks_ = run_.layout.rank_placement();
    nodes_ = run_.layout.node_placement();
    HVD_TRY(find_place_for_output());
    job_.kept_dir = kept_at_;
    if (observer_ != nullptr) {
      HVD_TRY(observer_->on_output(kept_at_, run_));
      HVD_TRY(observer_->on_preparing());
    }
    records_.emplace(job_, clock_, observer_ != nullptr && observer_->keeps_page_private());
    for (int node = 0; node < nodes_.size; ++node) {
      prepared_.insert(node);
    }
    StepMemory memory(node_log_files(), now_s, job_.hidden);
    tell_notices();
    if (job_.launcher == LauncherKind::kMpi && run_.job.preparation.empty()) {
      const auto found = find_mpi();  // otherwise preparation may install it
      if (!found.ok()) {
        return report_no_start(job_, found.error(), 0);
      }
    }
    auto code = prepare(memory);
    if (code.ok() && code.value() == 0 && observer_ != nullptr) {
      if (const auto agreed = observer_->on_ranks(); !agreed.ok()) {
        code = agreed.error();
      }
    }
    if (code.ok() && code.value() == 0) {
      const auto took = std::chrono::steady_clock::now() - began;
      code = run_ranks(memory, std::chrono::duration_cast<Duration>(took));
    }
    if (observer_ != nullptr && !memory.has_begun() && !memory.unreached().hosts.empty()) {
      observer_->on_unreached(memory.unreached());
    }
    if (observer_ != nullptr && (memory.is_interrupted() || stopped_by_ != 0)) {
      observer_->on_interrupted();
    }
    if (observer_ != nullptr && memory.has_failed_rank()) {
      observer_->on_failed_rank();
    }
    if (observer_ != nullptr) {
      observer_->on_lost(lost_hosts(memory));
    }
    // A lost node may still be running, but the others must not wait for it; so it is cleaned last.
    for (const Nodes which : {Nodes::kThere, Nodes::kLeft, Nodes::kLost}) {
      clean_up(memory, which);
    }
    if (is_to_be_requeued_) {
      requeue(job_);
    }
    return code;
  }

 private:
  enum class Nodes : std::uint8_t { kThere, kLeft, kLost };  // at the end of the ranks

  // Lays the job out on the hosts that there are now.
  Result<void> find_hosts() {
    HVD_TRY_ASSIGN(const HostList hosts, await_hosts_of(job_));
    const int per_node = job_.discovery.slots;
    HVD_TRY_ASSIGN(run_.layout, lay_out(run_.job, hosts, run_.job.node_count * per_node));
    HVD_TRY(check_rank_count(run_.layout.nodes, run_.layout.size(), limits_of_this_machine()));
    job_.hosts = run_.layout.nodes;
    job_.size = run_.layout.size();
    return {};
  }

  void tell_notices() const {
    if (job_.quiet) {
      return;
    }
    for (const std::string& notice : notices_) {
      say(job_, notice);
    }
    if (run_.job.container && run_.options.container == ContainerChoice::kNone) {
      say(job_, "--container none: the job runs on its hosts, and not in " + run_.job.container->image);
    }
    if (!kept_at_.empty()) {
      say(job_, "what the job prints is kept in " + kept_at_);
    }
    tell_missing_script();
  }

  // The ranks say so too, but only when the preparation is over, which may have taken an hour. It may make the script:
  // so this is no error, and a preparation that names the script is believed.
  void tell_missing_script() const {
    const bool runs_here =
        job_.launcher == LauncherKind::kOwn && std::any_of(job_.hosts.begin(), job_.hosts.end(), is_here);
    const auto script = runs_here ? script_here(run_, job_.cwd) : std::nullopt;
    std::error_code failed;
    if (!script || std::filesystem::status(*script, failed).type() != std::filesystem::file_type::not_found) {
      return;
    }
    const std::string& preparation = run_.job.preparation;
    if (preparation.find(script->substr(script->rfind('/') + 1)) == std::string::npos) {
      say(job_, error_at(run_.job.file, run_.job.tool.at,
                         "no such script here: '" + *script + "'; " +
                             (preparation.empty() ? "nothing in the file makes it"
                                                  : "the job fails unless its preparation makes it"))
                    .message());
    }
  }

  // Keeps the output where this machine has the mount that the file names; else among hvdrun's own files.
  Result<void> find_place_for_output() {
    if (run_.output.empty() && observer_ == nullptr) {
      return {};  // the user sees on the console what it prints
    }
    kept_at_ = run_.kept_at;
    const bool is_in_mount = !run_.shared_in_mount.empty() && !kept_at_.empty();
    std::error_code failed;
    if (is_in_mount && !std::filesystem::is_directory(mount_of_output(), failed)) {
      kept_at_.clear();
    }
    const bool is_own = kept_at_.empty();
    if (is_own) {
      if (!state_root_.ok()) {
        return state_root_.error().with_context("to keep what the job prints");
      }
      kept_at_ = state_root_.value() + "/jobs/" + run_.job.name + "/" + run_.options.uuid;
    }
    std::filesystem::create_directories(kept_at_, failed);
    if (!failed) {
      return {};
    }
    const Error why = Error::from_errno("cannot make the directory " + kept_at_, failed.value());
    return is_own ? Error(Code::kResource, why.message() +
                                               ", where what the job prints is kept, since this machine does not see "
                                               "the place that the file names; set XDG_STATE_HOME to a directory "
                                               "that can hold it")
                  : error_at(run_.job.file, run_.job.output_at, why);
  }

  [[nodiscard]] std::string mount_of_output() const {
    for (const Mount& mount : run_.job.mounts) {
      const std::string& here = mount.file_system ? mount.file_system->here : mount.directory;
      if (!here.empty() && run_.kept_at.starts_with(here + "/")) {
        return here;
      }
    }
    return "/";
  }

  [[nodiscard]] std::vector<std::string> node_log_files() const {
    std::vector<std::string> files;
    for (int node = 0; !kept_at_.empty() && node < static_cast<int>(nodes_.nodes.size()); ++node) {
      files.push_back(kept_at_ + "/" + node_log_file(run_, node));
    }
    return files;
  }

  Result<int> prepare(StepMemory& memory) {
    JobSpec spec = preparation_settings(job_, run_, nodes_.size);
    for (const std::string& id : run_.layout.ids) {
      spec.labels.push_back("prep " + id);
    }
    const bool has_preparation = !run_.job.preparation.empty();
    if (has_preparation && !kept_at_.empty()) {
      spec.kept_dir = kept_at_;
      for (int node = 0; node < nodes_.size; ++node) {
        spec.kept_files.push_back({preparation_file(run_, node, false), preparation_file(run_, node, true)});
      }
    }
    const auto programs = [this](const JobView& view) {
      learn(view);
      std::vector<RankProgram> all;
      for (int node = 0; node < nodes_.size; ++node) {
        JobTexts texts = texts_at(view, node);
        const std::string script = set_up_script(run_, facts_, node, texts).value();
        all.push_back(bash_program(script, texts, 0, node_variables(run_, facts_, node)));
        add_registry_password(all.back());
      }
      return all;
    };
    StepWords words;
    words.name = has_preparation ? "job environment preparation" : "setting up";
    words.failed_code = "JobPreparationFailed";
    words.early_name = "setting up";
    words.early_code = "JobSetUpFailed";
    words.early_exit = kSetUpFailed;
    words.is_silent = true;
    words.is_per_node = true;
    JobStep step{spec, nodes_, programs, reporter_with(memory, words)};
    step.tree = [this] { return tree_of(job_); };
    step.is_to_be_requeued = &is_to_be_requeued_;
    step.records = &*records_;
    step.name = "preparation";
    step.on_late_signal = [this](int signo, int code) {
      if (code == 0) {
        stopped_by_ = signo;
      }
      return stopped_by_ != 0;
    };
    auto ended = run_step_(step);
    if (stopped_by_ != 0) {
      say(job_, "hvdrun got " + signal_name(stopped_by_) + " before the ranks were started");
    }
    return ended;
  }

  Result<int> run_ranks(StepMemory& memory, Duration took) {
    JobSpec spec = job_;
    if (spec.timeout > Duration::zero()) {
      spec.timeout = std::max(Duration(std::chrono::milliseconds(1)), spec.timeout - took);
    }
    if (run_.job.tool.kind == Toolkit::kCustom) {
      spec.tells_place = false;
      spec.gpus = GpuMode::kNone;
    }
    if (!run_.starts_in_folder()) {
      spec.cwd = run_.temp();
    }
    for (int rank = 0; rank < run_.layout.size(); ++rank) {
      if (run_.layout.processes[static_cast<std::size_t>(rank)].role == JobProcess::Role::kServer) {
        spec.servers.push_back(rank);
      }
      if (!kept_at_.empty()) {
        spec.kept_files.push_back({process_file(run_, rank, false), process_file(run_, rank, true)});
      }
    }
    const auto programs = [this](const JobView& view) { return programs_of(run_, facts_, view); };
    StepWords words;
    words.name = "job";
    if (spec.launcher == LauncherKind::kMpi) {  // whose jobs never grow
      for (const NodePlan& agent : agents_of(spec, ranks_).nodes) {
        words.node_of_agent.push_back(ranks_.node_of(agent.ranks.front().rank).index);
      }
    }
    JobStep step{spec, ranks_, programs, reporter_with(memory, words)};
    step.tree = [this] { return tree_of(job_); };
    step.late_programs = [this, &memory](const Placement& placement, const std::map<int, NodeView>& views, int node,
                                         StartMessage& start) { join(placement, views, node, memory, start); };
    step.is_to_be_requeued = &is_to_be_requeued_;
    step.records = &*records_;
    step.host_source = [this](EventLoop& loop) {
      auto source = observer_ != nullptr ? observer_->host_source(loop) : nullptr;
      return source != nullptr ? std::move(source) : host_source_of(loop, job_);  // as before the ranks, by job_.cwd
    };
    return run_step_(step);
  }

  // Makes the ranks of a node that joins prepare it before they run: for the first of them that is what the step of
  // preparation does on the others.
  void join(const Placement& placement, const std::map<int, NodeView>& views, int node, StepMemory& memory,
            StartMessage& start) {
    for (auto next = run_.layout.nodes.size(); next < placement.nodes.size(); ++next) {
      const NodePlan& plan = placement.nodes[next];
      run_.layout.add_node(plan.host, static_cast<int>(plan.ranks.size()));
      if (!kept_at_.empty()) {
        memory.add_node(kept_at_ + "/" + node_log_file(run_, plan.index));
      }
    }
    std::vector<NodeView> there;
    for (const auto& [index, view] : views) {
      there.push_back(view);
    }
    const std::vector<JobNodeFacts> known = facts_of(there, job_.interfaces);
    std::vector<JobNodeFacts> facts(run_.layout.nodes.size());  // without an address: of nodes that are not there
    auto fact = known.begin();
    for (const auto& [index, view] : views) {
      facts[static_cast<std::size_t>(index)] = *fact++;
    }
    prepared_.insert(node);
    memory.say(node, "Executing 'job' on " + run_.layout.nodes[static_cast<std::size_t>(node)].name + ", which joins");
    if (!run_.starts_in_folder()) {
      start.cwd = "/";  // the job's folder is made by the ranks
    }
    const std::string& socket = views.at(node).ready.socket_path;
    JobTexts texts(socket.substr(0, socket.rfind('/')));
    for (StartMessage::Rank& rank : start.ranks) {
      const std::size_t written = texts.files().size();
      const std::string script = joining_script(run_, facts, rank.rank, texts).value();
      RankProgram program = bash_program(script, texts, written, process_variables(run_, facts, rank.rank));
      add_registry_password(program);
      set_program(program, start, rank);
    }
    if (observer_ != nullptr) {
      observer_->on_nodes(run_.layout, facts);
      static_cast<void>(observer_->on_output(kept_at_, run_));  // only `logs --rank` needs it
    }
  }

  void add_registry_password(RankProgram& program) const {
    if (run_.job.container && !run_.job.container->password.empty()) {
      program.env.emplace_back("HVDRUN_REGISTRY_PASSWORD", run_.job.container->password);
    }
  }

  [[nodiscard]] Result<void> find_mpi() const {
    const auto found = find_open_mpi(job_.environment);
    return found.ok() ? Result<void>()
                      : found.error().with_context(std::string(tool_type(run_.job.tool.kind)) + " job");
  }

  // A host that left and came back is several nodes; the last one counts.
  [[nodiscard]] bool has_come_back(std::size_t node) const {
    const HostList& nodes = run_.layout.nodes;
    return std::any_of(nodes.begin() + static_cast<std::ptrdiff_t>(std::max(node + 1, nodes_.nodes.size())),
                       nodes.end(), [&](const HostSpec& later) { return later.name == nodes[node].name; });
  }

  [[nodiscard]] std::vector<std::string> lost_hosts(const StepMemory& memory) const {
    std::vector<std::string> hosts;
    for (const int node : prepared_) {
      if (memory.is_lost(node) && !has_come_back(static_cast<std::size_t>(node))) {
        hosts.push_back(run_.layout.nodes[static_cast<std::size_t>(node)].name);
      }
    }
    return hosts;
  }

  // Cleans up on these nodes, whatever has become of the job.
  void clean_up(StepMemory& memory, Nodes which) const {
    HostList hosts;
    std::vector<int> nodes;
    for (const int node : prepared_) {
      const auto index = static_cast<std::size_t>(node);
      const Nodes own = memory.is_lost(node) ? Nodes::kLost : memory.has_left(node) ? Nodes::kLeft : Nodes::kThere;
      if (own == which && !has_come_back(index)) {
        hosts.push_back(run_.layout.nodes[index]);
        hosts.back().slots = 1;
        hosts.back().gpus.clear();
        nodes.push_back(node);
      }
    }
    if (facts_.empty() || hosts.empty()) {
      return;  // no node began
    }
    // Clean the mounts before the folder with the mount points goes, which may be removed from other nodes that are
    // this machine too.
    if (has_mounts_to_clean(run_) && which == Nodes::kThere) {
      const auto script = [this](JobTexts& texts) { return clean_mounts_script(run_, texts); };
      run_in_silence({hosts.front()}, {nodes.front()}, script, memory);
    }
    run_in_silence(hosts, nodes, [this](JobTexts&) { return clean_up_script(run_); }, memory);
  }

  // Runs a script on nodes. What its ranks print is what could not be done, and hvdrun reports it after the job's end.
  // The loss of a node is not reported again.
  void run_in_silence(const HostList& hosts, const std::vector<int>& nodes,
                      const std::function<std::string(JobTexts&)>& script, StepMemory& memory) const {
    const Placement placement = place(hosts, static_cast<int>(hosts.size())).value();
    const JobSpec spec = clean_up_settings(job_, placement.size);
    const auto programs = [&](const JobView& view) {
      std::vector<RankProgram> all;
      for (int rank = 0; rank < placement.size; ++rank) {
        JobTexts texts = texts_at(view, rank);
        const std::string text = script(texts);
        all.push_back(bash_program(text, texts, 0, mount_variables(run_)));
      }
      return all;
    };
    Lines failure;
    const auto in_silence = [&failure](std::unique_ptr<JobReporter>, const Placement&) {
      return std::make_unique<SilentReporter>(failure);
    };
    std::vector<std::pair<int, std::string>> left;
    const auto take = [&](int rank, std::string_view line) -> std::optional<std::string> {
      left.emplace_back(nodes[static_cast<std::size_t>(rank)], line.substr(0, line.find_last_not_of("\r\n") + 1));
      return "";
    };
    if (const auto code = run_step_({spec, placement, programs, in_silence, take}); !code.ok()) {
      failure.push_back(code.error().message());
    }
    for (const auto& [node, line] : left) {
      const std::string text = "cleaning up on " + run_.layout.nodes[static_cast<std::size_t>(node)].name + ": " + line;
      memory.say(node, text);
      say(job_, text);
    }
    for (const std::string& line : failure) {
      if (!memory.is_lost(nodes.front())) {
        say(job_, "cleaning up: " + line + "; what is left of the job is in " + run_.root);
      }
    }
  }

  void learn(const JobView& view) {
    facts_ = facts_of(view.views, job_.interfaces);
    if (observer_ != nullptr) {
      observer_->on_nodes(run_.layout, facts_);
    }
  }

  static std::function<std::unique_ptr<JobReporter>(std::unique_ptr<JobReporter>, const Placement&)> reporter_with(
      StepMemory& memory, const StepWords& words) {
    return [&memory, words](std::unique_ptr<JobReporter> inner, const Placement& agents) {
      return std::make_unique<StepReporter>(std::move(inner), agents, memory, words);
    };
  }

  const std::vector<std::string> notices_;
  const Result<std::string> state_root_;
  FileJobObserver* const observer_;  // may be null
  const RunStep run_step_;
  JobSpec job_;
  JobRun run_;  // its layout grows while nodes join
  // as the job begins
  Placement ranks_;
  Placement nodes_;
  std::set<int> prepared_;  // the nodes on which something is to be cleaned up
  std::string kept_at_;     // empty: no files
  std::vector<JobNodeFacts> facts_;
  const SteadyClock clock_;
  std::optional<JobRecords> records_;  // of the whole job, from its beginning on
  bool is_to_be_requeued_ = false;     // by Slurm, when all is cleaned up
  int stopped_by_ = 0;                 // the signal that came between the preparation and the ranks
};

}  // namespace

Result<int> run_file_job(FileJobSettings settings, FileJobObserver* observer) {
  return run_file_job(std::move(settings), observer, run_step);
}

Result<int> run_file_job(FileJobSettings settings, FileJobObserver* observer, RunStep run) {
  return FileJob(std::move(settings), observer, std::move(run)).run();
}

}  // namespace hvd::launch

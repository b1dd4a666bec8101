#include "launcher/engines/step_gang.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

// What the command says of a start that fails is part of the one line that reports it. A start that takes longer may be
// waiting for something, and then the user is told what it says.
constexpr auto kQuickStart = std::chrono::seconds(2);
// After the agents have said goodbye the command ends within milliseconds; on a busy controller it may take seconds.
constexpr auto kStepEnd = std::chrono::seconds(10);
constexpr auto kBrokenStepEnd = std::chrono::seconds(1);

}  // namespace

Result<std::unique_ptr<Gang>> StepGang::create(EventLoop& loop, const JobSpec& job, StepKind kind,
                                               const Placement& placement, Log& log,
                                               std::function<void(const std::string&)> say) {
  std::unique_ptr<StepGang> gang(new StepGang(loop, job, std::move(kind), placement, log, std::move(say)));
  HVD_TRY(gang->start(job));
  return std::unique_ptr<Gang>(std::move(gang));
}

StepGang::StepGang(EventLoop& loop, const JobSpec& job, StepKind kind, const Placement& placement, Log& log,
                   std::function<void(const std::string&)> say)
    : Gang(loop, job, static_cast<int>(placement.nodes.size()),
           Words{kind.engine, "node", "are its nodes up, and can they connect to this machine?"}, std::move(say)),
      kind_(std::move(kind)),
      wanted_(placement),
      slots_are_gpus_(job.slots_are_gpus),
      job_(job.engine_job),
      gpus_(placement.nodes.size() == job.hosts.size() ? job.engine_gpus : 0),
      log_(log) {}

Result<void> StepGang::start(const JobSpec& job) {
  HVD_TRY_ASSIGN(const DialBackOptions calls, DialBackOptions::make(false));
  HVD_TRY(listen(calls, log_));
  StepOptions options;
  options.agent_path = job.agent_path;
  options.environment = job.environment;
  options.open_files = job.open_files;
  options.node_gpus = job.node_gpus;
  const std::string first = wanted_.nodes.front().host.name;
  const std::string last = wanted_.nodes.back().host.name;
  if (slots_are_gpus_ || !job.slots_from.empty()) {
    tell(kind_.engine + "'s job " + job.engine_job + ": " + counted(wanted_.nodes.size(), "node") + " (" +
         (first == last ? first : first + " to " + last) + "), " +
         (slots_are_gpus_ ? std::string("a rank for each GPU, and one where there is none; -np says how many")
                          : counted(static_cast<std::size_t>(wanted_.size), "rank") + " (" + job.slots_from + ")") +
         (kind_.end_text == nullptr ? ""
                                    : kind_.end_text(job.environment, std::chrono::system_clock::to_time_t(
                                                                          std::chrono::system_clock::now()))));
  }
  step_ = std::make_unique<Engine>(loop(), kind_.command(wanted_, options, place(), calls.key()));
  Engine::Handlers handlers;
  handlers.on_line = [this](const std::string& line) { take_line(line); };
  quick_start_ = loop().after(kQuickStart, [this] {
    quick_start_ = 0;
    for (const std::string& line : std::exchange(held_lines_, {})) {
      tell(line);
    }
  });
  handlers.on_over = [this](const Error& why) {
    log_.write(LogLevel::kDebug, why.message());
    if (is_finishing_) {
      loop().stop();
    } else {
      on_over(why);
    }
  };
  return step_->start(std::move(handlers));
}

void StepGang::take_line(const std::string& line) {
  if (kind_.end_reason != nullptr) {
    EndReason reason = kind_.end_reason(line);
    if (reason.says_more_than(end_reason_)) {
      end_reason_ = std::move(reason);
    }
  }
  if (is_finishing_) {
    log_.write(LogLevel::kDebug, line);
  } else if (quick_start_ != 0) {
    held_lines_.push_back(line);
  } else {
    tell(line);  // srun's begin with "srun: "
  }
}

StepGang::~StepGang() {
  loop().cancel(quick_start_);
}

void StepGang::finish(bool is_whole) {
  is_finishing_ = true;
  if (!step_->is_running()) {
    return;
  }
  // A step that is ended on all nodes ends by itself, and the line that says why may be the last.
  const bool ends_soon = is_whole || (!end_reason_.text.empty() && !end_reason_.names_cause);
  const TimerId timer = loop().after(ends_soon ? kStepEnd : kBrokenStepEnd, [this] { loop().stop(); });
  if (const auto ran = loop().run(); !ran.ok()) {
    log_.write(LogLevel::kDebug, ran.error().message());
  }
  loop().cancel(timer);
}

std::string StepGang::last_words(bool was_told_to_end) const {
  // Where the ranks end at once, the command has often ended before it could say anything.
  const bool is_known = !end_reason_.text.empty() || !was_told_to_end;
  const std::string& reason = is_known ? end_reason_.text : kind_.told_to_end;
  return reason.empty() ? "" : kind_.engine + "'s job " + job_ + ": " + reason;
}

Result<CalledPlacement> StepGang::place_ranks(const std::vector<ReadyMessage>& facts) const {
  std::size_t seen = 0;
  for (const ReadyMessage& agent : facts) {
    seen += agent.gpus.size();
  }
  if (seen > 0 && seen < static_cast<std::size_t>(gpus_) && kind_.gpu_advice != nullptr) {
    tell(kind_.engine + " gives the ranks " + std::to_string(seen) + " of the job's " + std::to_string(gpus_) +
         " GPUs; " + kind_.gpu_advice);
  }
  return place_on_nodes(wanted_, kind_, slots_are_gpus_, facts);
}

Result<CalledPlacement> place_on_nodes(const Placement& wanted, const StepKind& kind, bool slots_are_gpus,
                                       const std::vector<ReadyMessage>& facts) {
  std::map<std::string, std::size_t> seats;
  for (std::size_t index = 0; index < facts.size(); ++index) {
    seats.emplace(facts[index].host_name, index);
  }
  std::vector<std::optional<std::size_t>> found;
  std::vector<bool> is_taken(facts.size());
  for (const NodePlan& node : wanted.nodes) {
    const auto seat = seats.find(node.host.name);
    found.push_back(seat == seats.end() ? std::nullopt : std::optional(seat->second));
    if (found.back()) {
      is_taken[*found.back()] = true;
    } else if (!kind.chooses_nodes) {
      return Error(Code::kInvalid, kind.engine + " has started no agent on " + node.host.name + ", but one on " +
                                       facts.front().host_name + "; is " + kind.nodes_from + " that of the job?");
    }
  }
  CalledPlacement called;
  HostList hosts;
  for (std::size_t index = 0; index < wanted.nodes.size(); ++index) {
    HostSpec host = wanted.nodes[index].host;
    if (!found[index]) {  // the next agent on a node that nobody asked for stands for this one
      const auto free = std::find(is_taken.begin(), is_taken.end(), false);
      *free = true;
      found[index] = static_cast<std::size_t>(free - is_taken.begin());
      host.name = facts[*found[index]].host_name;
    }
    const ReadyMessage& agent = facts[*found[index]];
    host.slots = slots_are_gpus ? std::max(1, static_cast<int>(agent.gpus.size())) : wanted.nodes[index].local_size();
    called.partition_of_rank.insert(called.partition_of_rank.end(), static_cast<std::size_t>(host.slots),
                                    static_cast<int>(*found[index]));
    hosts.push_back(std::move(host));
  }
  HVD_TRY_ASSIGN(called.placement, place(hosts, 0));
  return called;
}

}  // namespace hvd::launch

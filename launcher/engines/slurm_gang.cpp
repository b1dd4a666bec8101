#include "launcher/engines/slurm_gang.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "launcher/engines/slurm.h"
#include "launcher/engines/slurm_notice.h"
#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

// What srun says of a start that fails is part of the one line that reports it. A start that takes longer may be
// waiting for something, and then the user is told what srun says.
constexpr auto kQuickStart = std::chrono::seconds(2);
// After the agents have said goodbye srun ends within milliseconds; on a busy controller it may take seconds.
constexpr auto kSrunEnd = std::chrono::seconds(10);

}  // namespace

Result<std::unique_ptr<Gang>> SlurmGang::create(EventLoop& loop, const JobSpec& job, const Placement& placement,
                                                Log& log, std::function<void(const std::string&)> say) {
  std::unique_ptr<SlurmGang> gang(new SlurmGang(loop, job, placement, log, std::move(say)));
  HVD_TRY(gang->start(job));
  return std::unique_ptr<Gang>(std::move(gang));
}

SlurmGang::SlurmGang(EventLoop& loop, const JobSpec& job, const Placement& placement, Log& log,
                     std::function<void(const std::string&)> say)
    : Gang(loop, job, static_cast<int>(placement.nodes.size()),
           Words{"Slurm", "node", "are its nodes up, and can they connect to this machine?"}, std::move(say)),
      wanted_(placement),
      slots_are_gpus_(job.slots_are_gpus),
      log_(log) {}

Result<void> SlurmGang::start(const JobSpec& job) {
  HVD_TRY_ASSIGN(const DialBackOptions calls, DialBackOptions::make(false));
  HVD_TRY(listen(calls, log_));
  SrunOptions options;
  options.agent_path = job.agent_path;
  options.environment = job.environment;
  options.open_files = job.open_files;
  const std::string first = wanted_.nodes.front().host.name;
  const std::string last = wanted_.nodes.back().host.name;
  tell("Slurm's job " + job.engine_job + ": " + counted(wanted_.nodes.size(), "node") + " (" +
       (first == last ? first : first + " to " + last) + "), " +
       (slots_are_gpus_ ? std::string("a rank for each GPU, and one where there is none; -np says how many")
                        : counted(static_cast<std::size_t>(wanted_.size), "rank") + " (" + job.slots_from + ")") +
       slurm_end_text(job.environment, std::chrono::system_clock::to_time_t(std::chrono::system_clock::now())));
  srun_ = std::make_unique<Engine>(loop(), srun_command(wanted_, options, place(), calls.key()));
  Engine::Handlers handlers;
  handlers.on_line = [this](const std::string& line) {
    if (is_finishing_) {
      log_.write(LogLevel::kDebug, line);
    } else if (quick_start_ != 0) {
      held_lines_.push_back(line);
    } else {
      tell(line);  // it begins with "srun: "
    }
  };
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
  return srun_->start(std::move(handlers));
}

SlurmGang::~SlurmGang() {
  loop().cancel(quick_start_);
}

void SlurmGang::finish() {
  is_finishing_ = true;
  if (!srun_->is_running()) {
    return;
  }
  const TimerId timer = loop().after(kSrunEnd, [this] { loop().stop(); });
  if (const auto ran = loop().run(); !ran.ok()) {
    log_.write(LogLevel::kDebug, ran.error().message());
  }
  loop().cancel(timer);
}

Result<CalledPlacement> SlurmGang::place_ranks(const std::vector<ReadyMessage>& facts) const {
  return place_on_nodes(wanted_, slots_are_gpus_, facts);
}

Result<CalledPlacement> place_on_nodes(const Placement& wanted, bool slots_are_gpus,
                                       const std::vector<ReadyMessage>& facts) {
  std::map<std::string, std::size_t> seats;
  for (std::size_t index = 0; index < facts.size(); ++index) {
    seats.emplace(facts[index].host_name, index);
  }
  CalledPlacement called;
  HostList hosts;
  for (const NodePlan& node : wanted.nodes) {
    const auto seat = seats.find(node.host.name);
    if (seat == seats.end()) {
      return Error(Code::kInvalid, "Slurm has started no agent on " + node.host.name + ", but one on " +
                                       facts.front().host_name + "; is SLURM_JOB_NODELIST that of the job?");
    }
    HostSpec host = node.host;
    host.slots = slots_are_gpus ? std::max(1, static_cast<int>(facts[seat->second].gpus.size())) : node.local_size();
    called.partition_of_rank.insert(called.partition_of_rank.end(), static_cast<std::size_t>(host.slots),
                                    static_cast<int>(seat->second));
    hosts.push_back(std::move(host));
  }
  HVD_TRY_ASSIGN(called.placement, place(hosts, 0));
  return called;
}

}  // namespace hvd::launch

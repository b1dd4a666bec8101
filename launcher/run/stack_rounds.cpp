#include "launcher/run/stack_rounds.h"

#include <fcntl.h>

#include <utility>

#include "launcher/job/hidden_texts.h"
#include "launcher/logs/rank_files.h"
#include "launcher/stacks/stack_tree.h"
#include "runtime/base/fd.h"

namespace hvd::launch {
namespace {

// Reading one rank takes some tens of milliseconds; a node with many busy ranks takes a second or two.
constexpr auto kPatience = std::chrono::seconds(20);
// The end of a job does not wait so long for them.
constexpr auto kPatienceAtEnd = std::chrono::seconds(5);
// An answer is on its way for so long at most.
constexpr auto kTravelTime = std::chrono::seconds(1);

}  // namespace

void StackRounds::ask(bool is_native, Done done) {
  ask(is_native, kPatience, std::move(done));
}

void StackRounds::ask(bool is_native, Duration patience, Done done) {
  waiting_.push_back(std::move(done));
  if (waiting_.size() > 1) {
    return;
  }
  got_.clear();
  missing_.clear();
  const StacksRequest request{
      ++number_, is_native,
      static_cast<std::uint32_t>(std::chrono::duration_cast<std::chrono::milliseconds>(patience).count())};
  running_ = 0;
  for (const auto& session : job_.sessions) {
    bool has_running = false;
    for (const RankPlan& rank : job_.agent(session->plan().index).ranks) {
      if (job_.record(rank.rank).state == RankRecord::State::kRunning) {
        ++running_;
        has_running = true;
        if (session->is_open() && session->has_started() && !session->is_away()) {
          missing_.insert(rank.rank);
        }
      }
    }
    if (has_running && session->is_open() && session->has_started() && !session->is_away()) {
      session->send(AgentMessage::kAskStacks, request.encode());
    }
  }
  timer_ = job_.loop.after(missing_.empty() ? Duration::zero() : patience + kTravelTime, [this] { end(); });
}

void StackRounds::report(const std::string& why, std::function<void()> then) {
  ask(false, kPatienceAtEnd, [this, why, then = std::move(then)](const std::vector<RankStacks>& read, int running) {
    if (!job_.is_ending()) {  // else they are the stacks of ranks that end
      tell(why, read, running);
    }
    if (!is_over_) {
      then();
    }
  });
}

void StackRounds::tell(const std::string& why, const std::vector<RankStacks>& read, int running) {
  std::vector<RankStack> stacks;
  for (const RankStacks& one : read) {
    stacks.push_back(stack_of(one));
  }
  std::vector<std::string> lines = stack_report(stacks, running);
  lines.front() = why + ": " + lines.front();
  for (const std::string& line : lines) {
    job_.say(Note{LogLevel::kInfo, -1, line});
  }
  keep(lines);
}

void StackRounds::keep(const std::vector<std::string>& lines) {
  const std::string& folder = job_.spec.output_dir.empty() ? job_.spec.kept_dir : job_.spec.output_dir;
  if (folder.empty()) {
    return;
  }
  constexpr mode_t kMode = 0666;  // as the umask allows, like the ranks' output
  const std::string path = folder + "/" + kStacksFile;
  const Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, kMode));
  std::string text;
  for (const std::string& line : lines) {
    text += masked(line, job_.spec.hidden) + "\n";
  }
  if (!file.is_open() || !write_all(file.get(), text)) {
    const Error why = Error::from_errno("the stacks cannot be kept in " + path);
    job_.say(Note{LogLevel::kWarning, -1, why.message()});
  }
}

Result<void> StackRounds::on_answer(int node, const std::string& body) {
  HVD_TRY_ASSIGN(RankStacks stacks, RankStacks::decode(body));
  if (stacks.number != number_ || missing_.erase(stacks.rank) == 0) {
    return {};  // it comes too late
  }
  stacks.host = job_.agent(node).host.name;
  stacks.waits = masked(stacks.waits, job_.spec.hidden);
  got_.push_back(std::move(stacks));
  if (missing_.empty()) {
    job_.loop.cancel(timer_);
    timer_ = job_.loop.after(Duration::zero(), [this] { end(); });
  }
  return {};
}

void StackRounds::stop() {
  is_over_ = true;
  if (!waiting_.empty()) {
    end();
  }
}

void StackRounds::end() {
  job_.loop.cancel(std::exchange(timer_, 0));
  missing_.clear();
  const std::vector<Done> waiting = std::exchange(waiting_, {});
  const std::vector<RankStacks> got = std::exchange(got_, {});
  for (const Done& done : waiting) {
    done(got, running_);
  }
}

}  // namespace hvd::launch

// StepReporter reports one step of a job that has several, as a job file describes: preparing the nodes, the ranks,
// cleaning up. It passes on what another reporter prints, and also keeps each node's log (execution-NODE.log).
//
// Thread: loop only.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "launcher/job/unreached.h"
#include "launcher/placement/placement.h"
#include "launcher/run/job_reporter.h"

namespace hvd::launch {

// StepMemory is what the steps of a job share. It holds the log files of the nodes, in the Batch AI service's form
// ("2018/08/02 12:11:44 Executing 'X' on 10.0.0.4"), and what one step has learned for the next.
class StepMemory {
 public:
  using Now = std::function<std::int64_t()>;  // seconds since 1970

  // `files` holds one path for each node; empty: none are kept. failure() reports once what cannot be written. The
  // texts of `hidden` are masked in the files.
  StepMemory(std::vector<std::string> files, Now now, std::vector<std::string> hidden = {})
      : files_(std::move(files)), now_(std::move(now)), hidden_(std::move(hidden)) {}

  void say(int node, const std::string& text);
  // These pass on which nodes are lost to the next step.
  void note_lost(int node) { lost_.insert(node); }
  [[nodiscard]] bool is_lost(int node) const { return lost_.contains(node); }
  // A node that was given back while the others go on may be gone by the next step.
  void note_left(int node) { left_.insert(node); }
  [[nodiscard]] bool has_left(int node) const { return left_.contains(node); }
  void note_unreached(const Unreached& unreached) { unreached_ = unreached; }
  [[nodiscard]] const Unreached& unreached() const { return unreached_; }
  // A signal that hvdrun got has ended the job.
  void note_interrupted() { is_interrupted_ = true; }
  [[nodiscard]] bool is_interrupted() const { return is_interrupted_; }
  // True where the end of one of its processes has ended the job last, whose exit code it gives.
  void note_failed_rank(bool has_failed) { has_failed_rank_ = has_failed; }
  [[nodiscard]] bool has_failed_rank() const { return has_failed_rank_; }
  // A process of the job has been started, not only one that prepares a node.
  void note_begun() { has_begun_ = true; }
  [[nodiscard]] bool has_begun() const { return has_begun_; }
  // A node has joined, whose number follows those that are known.
  void add_node(const std::string& file) { files_.push_back(file); }
  // Returns false when an earlier step has reported the same.
  [[nodiscard]] bool is_new(const std::string& text) const { return !said_.contains(text); }
  void note_said(std::set<std::string> texts) { said_.merge(std::move(texts)); }
  // Returns what could not be written, once; empty: nothing.
  std::string failure();

 private:
  std::vector<std::string> files_;
  const Now now_;
  const std::vector<std::string> hidden_;
  std::string failure_;
  bool has_told_ = false;
  std::set<int> lost_;
  std::set<int> left_;
  Unreached unreached_;
  bool is_interrupted_ = false;
  bool has_failed_rank_ = false;
  bool has_begun_ = false;
  std::set<std::string> said_;
};

struct StepWords {
  std::string name;         // "job environment preparation": in the nodes' logs
  std::string failed_code;  // "JobPreparationFailed": shown with a failure; empty: as for any job
  // These replace them for a rank that exits with `early_exit`, which means that it failed before its own step began.
  std::string early_name{};
  std::string early_code{};
  int early_exit = 0;
  bool is_silent = false;    // print nothing unless the step fails
  bool is_per_node = false;  // its ranks are nodes, and messages call them so
  // The node of each agent, where nodes have several (under mpirun one for each rank); empty: an agent's number is its
  // node's.
  std::vector<int> node_of_agent{};
};

class StepReporter final : public JobReporter {
 public:
  // `agents` counts agents as nodes, as the news do.
  StepReporter(std::unique_ptr<JobReporter> inner, const Placement& agents, StepMemory& memory, StepWords words)
      : inner_(std::move(inner)), agents_(agents), memory_(memory), words_(std::move(words)) {}

  ~StepReporter() override { memory_.note_said(std::move(notes_)); }
  StepReporter(const StepReporter&) = delete;
  StepReporter& operator=(const StepReporter&) = delete;

  Lines on(const JobNews& news) override;
  [[nodiscard]] std::string status() const override { return inner_->status(); }

 private:
  Lines lines_of(const news::AllReady& all);
  Lines lines_of(const news::NodeAway& gone);
  Lines lines_of(const news::NodeLost& lost);
  Lines lines_of(const news::RankStarted& started);
  Lines lines_of(const news::RankEnded& ended);
  Lines lines_of(const news::GenerationFormed& formed);
  Lines lines_of(const Note& note);
  // Of a step whose ranks are nodes only the end is reported, as a Failure.
  Lines lines_of(const news::Failing& failing);
  Lines lines_of(const Failure& failure);
  Lines lines_of(const news::Ended& ended);
  Lines lines_of(const news::Begun& begun) { return held(inner_->on(begun)); }
  Lines lines_of(const news::NodeReady& ready) {
    ready_.insert(ready.node);
    return held(inner_->on(ready));
  }
  template <typename Other>
  Lines lines_of(const Other& news) {
    return inner_->on(news);
  }
  // Keeps the lines of a silent step, to be printed before its failure.
  Lines held(Lines lines);
  Lines released();
  [[nodiscard]] bool is_early(const ExitStatus& status) const {
    return words_.early_exit != 0 && status.shell_code() == words_.early_exit;
  }
  [[nodiscard]] int node_at(int agent) const {
    return words_.node_of_agent.empty() ? agent : words_.node_of_agent[static_cast<std::size_t>(agent)];
  }
  [[nodiscard]] int agent_of(int rank) const { return agents_.node_of(rank).index; }
  [[nodiscard]] int node_of(int rank) const { return node_at(agent_of(rank)); }
  [[nodiscard]] const std::string& host_of(int agent) const {
    return agents_.nodes[static_cast<std::size_t>(agent)].host.name;
  }
  // Writes a text, which may name the host, into each node's log.
  void say_to_each(const std::function<std::string(const std::string& host)>& text);

  const std::unique_ptr<JobReporter> inner_;
  const Placement& agents_;
  StepMemory& memory_;
  const StepWords words_;
  Lines held_;
  bool has_failed_ = false;
  std::set<int> ready_;          // agents
  std::set<std::string> notes_;  // of this step
};

}  // namespace hvd::launch

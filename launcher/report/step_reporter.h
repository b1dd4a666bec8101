// StepReporter reports one step of a job that has several, as a job file describes: preparing the nodes, the ranks,
// cleaning up. It passes on what another reporter prints, and also keeps each node's log (execution-NODE.log).
//
// Thread: loop only.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "launcher/placement/placement.h"
#include "launcher/run/job_reporter.h"

namespace hvd::launch {

// StepMemory is what the steps of a job share. It holds the log files of the nodes, in the Batch AI service's form
// ("2018/08/02 12:11:44 Executing 'X' on 10.0.0.4"), and what one step has learned for the next.
class StepMemory {
 public:
  using Now = std::function<std::int64_t()>;  // seconds since 1970

  // `files` holds one path for each node; empty: none are kept. failure() reports once what cannot be written.
  StepMemory(std::vector<std::string> files, Now now) : files_(std::move(files)), now_(std::move(now)) {}

  void say(int node, const std::string& text);
  // These pass on which nodes are lost to the next step.
  void note_lost(int node) { lost_.insert(node); }
  [[nodiscard]] bool is_lost(int node) const { return lost_.contains(node); }
  // Returns false when another step has reported the same.
  bool is_new(const std::string& text) { return said_.insert(text).second; }
  // Returns what could not be written, once; empty: nothing.
  std::string failure();

 private:
  const std::vector<std::string> files_;
  const Now now_;
  std::string failure_;
  bool has_told_ = false;
  std::set<int> lost_;
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
};

class StepReporter final : public JobReporter {
 public:
  StepReporter(std::unique_ptr<JobReporter> inner, const Placement& placement, StepMemory& memory, StepWords words)
      : inner_(std::move(inner)), placement_(placement), memory_(memory), words_(std::move(words)) {}

  Lines on_begin(const std::string& job_id) override;
  Lines on_node_progress(int node, const std::string& what) override { return inner_->on_node_progress(node, what); }
  Lines on_node_ready(int node, const ReadyMessage& ready) override;
  Lines on_slow_start() override { return inner_->on_slow_start(); }
  Lines on_all_ready(Duration took) override;
  Lines on_node_away(int node, const Error& why, Duration patience) override;
  Lines on_node_back(int node, Duration away) override { return inner_->on_node_back(node, away); }
  Lines on_node_lost(int node, const Error& why) override;
  Lines on_rank_started(int rank, int pid) override;
  Lines on_rank_ended(int rank, const ExitStatus& status, const ExitDetail& detail) override;
  Lines on_rank_restarted(int rank, const std::string& cause, int number, int limit) override {
    return inner_->on_rank_restarted(rank, cause, number, limit);
  }
  Lines on_note(const Note& note) override;
  Lines on_engine_line(const std::string& engine, const std::string& line) override {
    return inner_->on_engine_line(engine, line);
  }
  // For a step whose ranks are nodes only the end is reported, by on_failure().
  Lines on_failing(const Cause& cause) override;
  Lines on_failure(const Failure& failure) override;
  Lines on_refused(const Error& why, int exit_code) override { return inner_->on_refused(why, exit_code); }
  Lines on_end(const JobState& state, Duration took) override;
  [[nodiscard]] std::string status() const override { return inner_->status(); }

 private:
  // Keeps the lines of a silent step, to be printed before its failure.
  Lines held(Lines lines);
  Lines released();
  [[nodiscard]] bool is_early(const ExitStatus& status) const {
    return words_.early_exit != 0 && status.shell_code() == words_.early_exit;
  }
  [[nodiscard]] int node_of(int rank) const { return placement_.node_of(rank).index; }
  [[nodiscard]] const std::string& host_of(int node) const {
    return placement_.nodes[static_cast<std::size_t>(node)].host.name;
  }

  const std::unique_ptr<JobReporter> inner_;
  const Placement& placement_;
  StepMemory& memory_;
  const StepWords words_;
  Lines held_;
  bool has_failed_ = false;
};

}  // namespace hvd::launch

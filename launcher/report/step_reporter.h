// StepReporter: what is said of one step of a job that has several (what a job file describes: preparing the nodes, the
// ranks, cleaning up). It passes on what another reporter says, and keeps each node's log (execution-NODE.log) beside
// it.
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

// What the steps of a job have in common: the files that say what was done on each node, in the service's form
// ("2018/08/02 12:11:44 Executing 'X' on 10.0.0.4"), and what one step has learned.
class StepMemory {
 public:
  using Now = std::function<std::int64_t()>;  // seconds since 1970

  // `files`: one path for each node; empty: none are kept. What cannot be written is told once, by failure().
  StepMemory(std::vector<std::string> files, Now now) : files_(std::move(files)), now_(std::move(now)) {}

  void say(int node, const std::string& text);
  // What one step has learned and the next must know.
  void note_lost(int node) { lost_.insert(node); }
  [[nodiscard]] bool is_lost(int node) const { return lost_.contains(node); }
  // False when another step has said the same.
  bool is_new(const std::string& text) { return said_.insert(text).second; }
  // What could not be written, once; empty: nothing.
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
  std::string failed_code;  // "JobPreparationFailed": said of a failure; empty: as any job's
  // The same for a rank that exits with `early_exit`, by which it says that it came not so far.
  std::string early_name{};
  std::string early_code{};
  int early_exit = 0;
  bool is_silent = false;    // nothing is said unless it fails
  bool is_per_node = false;  // its ranks are nodes, and are called so
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
  // Of a step whose ranks are nodes only the end is told, by on_failure().
  Lines on_failing(const Cause& cause) override;
  Lines on_failure(const Failure& failure) override;
  Lines on_refused(const Error& why, int exit_code) override { return inner_->on_refused(why, exit_code); }
  Lines on_end(const JobState& state, Duration took) override;
  [[nodiscard]] std::string status() const override { return inner_->status(); }

 private:
  // Of a silent step: kept, and said before its failure.
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

// JobHistory is what a page tells of a job: its nodes, the processes of its ranks with their times, and what happened.
// It is made of the events of `hvdrun --json` (launcher/docs/json.md) and knows nothing else of a job.
//
// Pure. Thread: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hvd::launch {

// Times are in seconds since the job began. A span that has not ended has no end.
struct HistorySpan {
  double from = 0;
  std::optional<double> to;
};

// One process of a rank.
struct HistoryProcess {
  enum class End : std::uint8_t { kRunning, kSucceeded, kFailed, kLost };

  HistorySpan time;
  long long pid = 0;
  End end = End::kRunning;
  std::string how;  // "exited with code 3", "SIGKILL"; empty: it runs or is lost
};

struct HistoryRank {
  int rank = 0;
  int node = 0;
  std::vector<HistoryProcess> processes;  // in order of time
};

struct HistoryNode {
  std::string host;
  std::string transport;
  int cores = 0;  // 0: it has not answered
  int gpus = 0;
  std::optional<double> ready;    // when it answered
  std::vector<HistorySpan> away;  // when its connection was broken
  bool is_lost = false;
};

struct HistoryFailure {
  double at = 0;
  std::vector<std::string> causes;
  int exit_code = 0;
  int rank = -1;  // -1: no rank failed
  std::string host;
  std::string exception;
  std::string frame;
  std::vector<std::string> last_errors;
  std::string kept_in;
};

// One thing that happened is told in words.
struct HistoryEvent {
  enum class Tone : std::uint8_t { kPlain, kWarning, kBad };

  double at = 0;
  Tone tone = Tone::kPlain;
  std::string text;
};

// The ranks of an elastic job train together in another composition from here on.
struct HistoryGeneration {
  double at = 0;
  int number = 0;
};

struct HistoryEnd {
  int exit_code = 0;
  bool has_counts = false;  // of its ranks; none are known where the job ended between two starts
  int succeeded = 0;
  int failed = 0;
  int lost = 0;
  int not_started = 0;
  int released = 0;
  bool is_output_kept = true;
};

class JobHistory {
 public:
  // Takes one line of events. A line that is none, as ranks print between them, changes nothing. A job_started that
  // follows no job_restarted begins a new history.
  void add(std::string_view line);

  [[nodiscard]] const std::string& job() const { return job_; }
  [[nodiscard]] const std::string& version() const { return version_; }
  [[nodiscard]] const std::string& cwd() const { return cwd_; }
  [[nodiscard]] const std::vector<std::string>& argv() const { return argv_; }
  // "2026-11-22T01:02:03.456Z"; that of the job's first event; empty: there was none.
  [[nodiscard]] const std::string& began() const { return began_; }
  // The same in milliseconds since 1970.
  [[nodiscard]] long long began_ms() const { return began_ms_; }
  // The time of the latest event, and of the end once there is one.
  [[nodiscard]] double latest() const { return latest_; }
  // By number; a number that no event has told has a node without a host.
  [[nodiscard]] const std::vector<HistoryNode>& nodes() const { return nodes_; }
  [[nodiscard]] const std::vector<HistoryRank>& ranks() const { return ranks_; }
  [[nodiscard]] const std::vector<HistoryGeneration>& generations() const { return generations_; }
  [[nodiscard]] const std::optional<HistoryFailure>& failure() const { return failure_; }
  [[nodiscard]] const std::optional<HistoryEnd>& end() const { return end_; }
  // All ranks have ended, and are to be started anew.
  [[nodiscard]] bool is_restarting() const { return restarts_; }
  // The first 500 things that happened.
  [[nodiscard]] const std::vector<HistoryEvent>& events() const { return events_; }
  [[nodiscard]] std::size_t count_of_events() const { return count_of_events_; }

 private:
  struct Event;  // one line, read

  void begin(const Event& event);
  void take_node_event(const Event& event);
  void take_rank_event(const Event& event);
  void take_generation(const Event& event);
  void take_failure(const Event& event);
  void take_end(const Event& event);
  void note(HistoryEvent::Tone tone, std::string text);
  // Both grow the lists as needed; null: the event names none, or one that is out of bounds.
  HistoryNode* node_of(const Event& event);
  HistoryRank* rank_of(const Event& event);

  std::string job_;
  std::string version_;
  std::string cwd_;
  std::vector<std::string> argv_;
  std::string began_;
  long long began_ms_ = 0;
  double latest_ = 0;
  bool restarts_ = false;  // job_restarted was the last event
  std::vector<HistoryNode> nodes_;
  std::vector<HistoryRank> ranks_;
  std::vector<HistoryGeneration> generations_;
  std::optional<HistoryFailure> failure_;
  std::optional<HistoryEnd> end_;
  std::vector<HistoryEvent> events_;
  std::size_t count_of_events_ = 0;
};

}  // namespace hvd::launch

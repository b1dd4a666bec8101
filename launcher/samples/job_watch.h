// JobWatch watches a running job for as long as somebody wants it: it asks the nodes for samples, makes the job's
// picture of them (JobSamples), and keeps its metrics in a file.
//
// What goes wrong here never harms the job: it is told once. Thread: loop only.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "launcher/samples/job_samples.h"
#include "runtime/io/event_loop.h"

namespace hvd::launch {

class JobWatch {
 public:
  struct Sink {
    std::function<void(int node, std::uint32_t interval_ms)> ask;  // the node's agent, for samples
    std::function<JobPicture()> view;                              // the nodes, and the ranks with their states
    std::function<void(const Error&)> on_trouble;                  // the metrics cannot be written
  };
  static constexpr auto kInterval = std::chrono::seconds(1);

  JobWatch(EventLoop& loop, Sink sink) : loop_(loop), sink_(std::move(sink)) {}
  ~JobWatch();
  JobWatch(const JobWatch&) = delete;
  JobWatch& operator=(const JobWatch&) = delete;

  // Keeps the metrics in this file from now on.
  void keep_in(const std::string& metrics_file);
  // The job has ended: the metrics have its last state.
  void finish();
  // Somebody more, or less, wants samples.
  void want();
  void release();
  // The job as it is now.
  [[nodiscard]] JobPicture picture() const;

  // The agent of this node has started ranks.
  void on_started(int node);
  void on_back(int node) { samples_.note_back(node); }
  void on_sample(int node, const SampleMessage& sample) { samples_.take(node, sample); }
  void on_output(int rank, std::string_view bytes) { samples_.note_output(rank, bytes, loop_.now()); }

 private:
  void ask_all(Duration interval);
  void write();
  void write_later();

  // constant after construction
  EventLoop& loop_;
  const Sink sink_;
  // loop only
  JobSamples samples_;
  std::set<int> nodes_;  // whose agents have started ranks
  int wanted_ = 0;
  std::string file_;  // of the metrics; empty: none
  bool is_troubled_ = false;
  TimerId timer_ = 0;
};

}  // namespace hvd::launch

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

#include "launcher/http/http_server.h"
#include "launcher/job/metrics_place.h"
#include "launcher/samples/job_samples.h"
#include "runtime/io/event_loop.h"

namespace hvd::launch {

class JobWatch {
 public:
  struct Sink {
    std::function<void(int node, const WatchMessage&)> ask;  // the node's agent, for samples
    std::function<JobPicture()> view;                        // the nodes, and the ranks with their states
    std::function<void(const Error&)> on_trouble;            // the metrics cannot be written, or served
  };
  static constexpr auto kInterval = std::chrono::seconds(1);
  static constexpr auto kFollowInterval = std::chrono::seconds(5);

  JobWatch(EventLoop& loop, Sink sink) : loop_(loop), sink_(std::move(sink)) {}
  ~JobWatch();
  JobWatch(const JobWatch&) = delete;
  JobWatch& operator=(const JobWatch&) = delete;

  // Keeps the metrics in this file from now on.
  void keep_in(const std::string& metrics_file);
  // Gives them to whoever asks for them there.
  void serve(const MetricsPlace& place);
  // Gives the job's picture to `follower` every few seconds from now on, and once more when the job has ended.
  void follow(std::function<void(const JobPicture&)> follower);
  // The job has ended: the metrics have its last state.
  void finish();
  // Somebody more, or less, wants samples each second, with all that there is.
  void want();
  void release();
  // From now on ranks are watched for stalls, at this interval where nobody else wants samples, without the GPUs.
  void watch_ranks(Duration interval);
  // The job as it is now.
  [[nodiscard]] JobPicture picture() const;

  // The agent of this node has started ranks.
  void on_started(int node);
  void on_back(int node) { samples_.note_back(node); }
  void on_sample(int node, const SampleMessage& sample) { samples_.take(node, sample); }
  void on_output(int rank, std::string_view bytes) { samples_.note_output(rank, bytes, loop_.now()); }

 private:
  [[nodiscard]] WatchMessage wanted() const;
  void ask_all();
  void write();
  void write_later();
  void tell_follower();

  // constant after construction
  EventLoop& loop_;
  const Sink sink_;
  // loop only
  JobSamples samples_;
  std::set<int> nodes_;  // whose agents have started ranks
  int viewers_ = 0;
  Duration stall_interval_{};                        // zero: nobody looks for stalls
  std::function<void(const JobPicture&)> follower_;  // empty: nobody follows
  TimerId follow_timer_ = 0;
  std::string file_;  // of the metrics; empty: none
  bool is_troubled_ = false;
  std::unique_ptr<HttpServer> server_;  // null: nobody can ask for them
  TimerId timer_ = 0;
};

}  // namespace hvd::launch

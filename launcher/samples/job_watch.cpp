#include "launcher/samples/job_watch.h"

#include <utility>

#include "launcher/samples/metrics_answer.h"
#include "launcher/samples/metrics_text.h"
#include "runtime/base/replace_file.h"

namespace hvd::launch {

JobWatch::~JobWatch() {
  loop_.cancel(timer_);
  loop_.cancel(follow_timer_);
}

void JobWatch::keep_in(const std::string& metrics_file) {
  file_ = metrics_file;
  want();
  write();
  write_later();
}

void JobWatch::serve(const MetricsPlace& place) {
  const auto answer = [this, token = place.token](const HttpRequest& request) {
    return metrics_answer(request, token, [this] { return metrics_text(picture(), MetricsForm::kOpenMetrics); });
  };
  auto server = place.socket.empty() ? HttpServer::at_address(loop_, place.ip, place.port, answer)
                                     : HttpServer::at_socket(loop_, place.socket, answer);
  if (!server.ok()) {
    sink_.on_trouble(server.error().with_context("--metrics-listen"));
    return;
  }
  server_ = std::move(server).value();
  want();
}

void JobWatch::follow(std::function<void(const JobPicture&)> follower) {
  follower_ = std::move(follower);
  ask_all();
  follow_timer_ = loop_.after(kFollowInterval, [this] { tell_follower(); });
}

void JobWatch::tell_follower() {
  follower_(picture());
  follow_timer_ = loop_.after(kFollowInterval, [this] { tell_follower(); });
}

void JobWatch::finish() {
  server_.reset();
  loop_.cancel(std::exchange(timer_, 0));
  loop_.cancel(std::exchange(follow_timer_, 0));
  write();
  if (follower_) {
    follower_(picture());
  }
}

void JobWatch::want() {
  if (++viewers_ == 1) {
    ask_all();
  }
}

void JobWatch::release() {
  if (--viewers_ == 0) {
    ask_all();
  }
}

void JobWatch::watch_ranks(Duration interval) {
  stall_interval_ = interval;
  if (viewers_ == 0) {
    ask_all();
  }
}

JobPicture JobWatch::picture() const {
  JobPicture view = sink_.view();
  samples_.fill(view, loop_.now());
  return view;
}

void JobWatch::on_started(int node) {
  if (nodes_.insert(node).second && wanted().interval_ms > 0) {
    sink_.ask(node, wanted());
  }
}

WatchMessage JobWatch::wanted() const {
  Duration interval = viewers_ > 0 ? Duration(kInterval) : stall_interval_;
  if (follower_ && (interval == Duration::zero() || interval > kFollowInterval)) {
    interval = kFollowInterval;
  }
  return {static_cast<std::uint32_t>(std::chrono::duration_cast<std::chrono::milliseconds>(interval).count()),
          viewers_ > 0 || follower_};
}

void JobWatch::ask_all() {
  for (const int node : nodes_) {
    sink_.ask(node, wanted());
  }
}

void JobWatch::write_later() {
  timer_ = loop_.after(kInterval, [this] {
    write();
    write_later();
  });
}

void JobWatch::write() {
  if (file_.empty()) {
    return;
  }
  // The collector of node_exporter reads files of other users, so everybody may read this one.
  const auto written = replace_file(file_, metrics_text(picture(), MetricsForm::kPrometheus), 0644);
  if (!written.ok() && !std::exchange(is_troubled_, true)) {
    sink_.on_trouble(written.error().with_context("--metrics"));
  }
}

}  // namespace hvd::launch

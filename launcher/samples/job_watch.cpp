#include "launcher/samples/job_watch.h"

#include <utility>

#include "launcher/samples/metrics_text.h"
#include "runtime/base/replace_file.h"

namespace hvd::launch {

JobWatch::~JobWatch() {
  loop_.cancel(timer_);
}

void JobWatch::keep_in(const std::string& metrics_file) {
  file_ = metrics_file;
  want();
  write();
  write_later();
}

void JobWatch::finish() {
  loop_.cancel(std::exchange(timer_, 0));
  write();
}

void JobWatch::want() {
  if (++wanted_ == 1) {
    ask_all(kInterval);
  }
}

void JobWatch::release() {
  if (--wanted_ == 0) {
    ask_all(Duration::zero());
  }
}

JobPicture JobWatch::picture() const {
  JobPicture view = sink_.view();
  samples_.fill(view, loop_.now());
  return view;
}

void JobWatch::on_started(int node) {
  if (nodes_.insert(node).second && wanted_ > 0) {
    sink_.ask(node, static_cast<std::uint32_t>(std::chrono::milliseconds(kInterval).count()));
  }
}

void JobWatch::ask_all(Duration interval) {
  for (const int node : nodes_) {
    sink_.ask(node,
              static_cast<std::uint32_t>(std::chrono::duration_cast<std::chrono::milliseconds>(interval).count()));
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
    sink_.on_trouble(written.error());
  }
}

}  // namespace hvd::launch

// PageFile keeps the page of a job on disk, while the job runs and when it has ended: each time it is replaced whole,
// so that a reader never sees a part of one. A page that cannot be written is told once and harms nothing else.
//
// Thread: loop only.
#pragma once

#include <string>
#include <string_view>

#include "launcher/page/job_curves.h"
#include "launcher/page/job_history.h"
#include "runtime/base/clock.h"

namespace hvd::launch {

class PageFile {
 public:
  // `is_private`: nobody but the user may read it; else the umask says who may.
  PageFile(std::string path, const Clock& clock, bool is_private = false)
      : path_(std::move(path)), clock_(clock), is_private_(is_private) {}

  // Takes what the job uses now; the page has it the next time that it is written.
  void take(const JobPicture& picture);
  // Takes one event. It writes the page when a job has begun, failed or ended, and else at most every five seconds.
  void add(std::string_view event);
  // Returns why the page could not be written, once; empty: nothing.
  std::string failure();

 private:
  void write();

  const std::string path_;
  const Clock& clock_;
  const bool is_private_;
  JobHistory history_;
  JobCurves curves_;
  TimePoint began_{};
  TimePoint written_;
  bool has_been_written_ = false;
  std::string failure_;
  bool has_told_ = false;
};

}  // namespace hvd::launch

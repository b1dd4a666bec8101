#include "launcher/page/page_file.h"

#include <sys/types.h>

#include <optional>
#include <utility>

#include "launcher/page/job_page.h"
#include "runtime/base/replace_file.h"

namespace hvd::launch {
namespace {

constexpr auto kInterval = std::chrono::seconds(5);
constexpr mode_t kOwnFile = 0600;

}  // namespace

void PageFile::add(std::string_view event) {
  const bool had_failed = history_.failure().has_value();
  const std::string began = history_.began();
  const bool was_restarting = history_.is_restarting();
  history_.add(event);
  const bool has_begun = history_.began() != began;  // also the next step of a job file
  if (has_begun) {
    curves_ = JobCurves();
    began_ = clock_.now();
  }
  if (history_.is_restarting() && !was_restarting) {
    curves_.start_again();
  }
  const bool is_news =
      has_begun || !has_been_written_ || history_.end() || history_.failure().has_value() != had_failed;
  if (is_news || clock_.now() - written_ >= kInterval) {
    write();
  }
}

void PageFile::take(const JobPicture& picture) {
  curves_.take(std::chrono::duration<double>(clock_.now() - began_).count(), picture);
  if (has_been_written_ && clock_.now() - written_ >= kInterval) {
    write();
  }
}

std::string PageFile::failure() {
  return has_told_ || failure_.empty() ? "" : (has_told_ = true, failure_);
}

void PageFile::write() {
  if (!failure_.empty()) {
    return;
  }
  if (const auto written =
          replace_file(path_, job_page(history_, curves_), is_private_ ? std::optional(kOwnFile) : std::nullopt);
      !written.ok()) {
    failure_ = "--report: " + written.error().message() + "; the job goes on without its page";
  }
  has_been_written_ = true;
  written_ = clock_.now();
}

}  // namespace hvd::launch

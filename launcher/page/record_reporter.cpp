#include "launcher/page/record_reporter.h"

namespace hvd::launch {

Lines RecordReporter::on(const JobNews& news) {
  for (const std::string& event : events_.on(news)) {
    records_.add(event);
  }
  Lines lines = inner_->on(news);
  if (const std::string why = records_.failure(); !why.empty()) {
    const Lines told = inner_->on(Note{LogLevel::kError, -1, why});
    lines.insert(lines.begin(), told.begin(), told.end());
  }
  return lines;
}

}  // namespace hvd::launch

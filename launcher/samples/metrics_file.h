// MetricsFile keeps a job's metrics in a file for node_exporter's textfile collector. Who reads it finds a whole text:
// each new one is written beside it and takes its place.
//
// Thread: any.
#pragma once

#include <string>
#include <string_view>

#include "runtime/base/result.h"

namespace hvd::launch {

class MetricsFile {
 public:
  explicit MetricsFile(std::string path) : path_(std::move(path)) {}

  // Replaces what the file has. An error names it.
  Result<void> write(std::string_view text) const;

 private:
  const std::string path_;
};

}  // namespace hvd::launch

// These functions open the file of a timeline. Two jobs that wrote the same one would leave neither's events readable,
// so the file is locked while it is written. Such a lock ends with the process.
//
// Thread: any.
#pragma once

#include <string>

#include "runtime/base/fd.h"
#include "runtime/base/result.h"

namespace hvd {

struct TimelineFile {
  Fd fd;
  std::string path;
  // What is in the file cannot be overwritten, as on mounts of object stores: "/dbfs" of Databricks, S3, blob storage.
  bool takes_only_appends = false;
};

// Opens the file for writing from its beginning, without its earlier content. kInvalid: somebody else writes it.
Result<TimelineFile> open_timeline(const std::string& path);
// Lets others write the file. A process that was forked meanwhile has the file open still, and with it the lock.
void unlock_timeline(const Fd& file);

// Returns the path, or, if there is such a file, the first of "trace.2.json", "trace.3.json", ... that is none yet.
std::string unused_timeline_path(const std::string& path);

}  // namespace hvd

// FailureSigns: finds in what a rank prints on its standard error where it begins to tell of a failure. For ranks that
// have no libhvd to tell hvdrun.
#pragma once

#include <string_view>

namespace hvd::launch {

class FailureSigns {
 public:
  enum class Sign {
    kNone,
    kBegins,  // a traceback, or the words of an abort, begin here; the program may have caught the exception
    kLost,    // what has begun says that another process was lost, so that the failure came of that one
  };

  // A whole line, with or without its end.
  Sign on_line(std::string_view line);

 private:
  bool is_continued_ = false;  // the next traceback belongs to the last one
  int lines_left_ = 0;         // in which what has begun is looked at
};

}  // namespace hvd::launch

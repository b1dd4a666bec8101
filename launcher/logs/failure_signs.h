// FailureSigns finds the place in a rank's standard error where it begins to report a failure. It exists for ranks
// without libhvd, which cannot report failures to hvdrun themselves.
#pragma once

#include <string_view>

namespace hvd::launch {

class FailureSigns {
 public:
  enum class Sign {
    kNone,
    kBegins,  // a traceback or an abort message begins here; the program may have caught the exception
    kLost,    // the message that has begun says that another process was lost, so that one failed first
  };

  // Takes a whole line, with or without its newline.
  Sign on_line(std::string_view line);

 private:
  bool is_continued_ = false;  // the next traceback belongs to the last one
  int lines_left_ = 0;         // how many more lines of the message are examined
};

}  // namespace hvd::launch

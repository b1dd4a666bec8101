// ActivityReader reads what the libhvd of each rank says of itself (runtime/observe/activity_page.h). It finds the page
// among the open files of the rank's processes, so neither a rank nor its environment needs to know of it.
//
// A rank may write into its page whatever it likes: texts are cut and made printable here. Thread: loop only.
#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <vector>

#include "launcher/wire/sample_messages.h"
#include "runtime/base/fd.h"

namespace hvd::launch {

class ActivityReader {
 public:
  // `processes` are those of the rank whose process is `root`. Returns nullopt if none of them has opened libhvd, as
  // far as is known: a rank without a page is looked at ever more seldom, up to every 16th call.
  std::optional<RuntimeSample> read(pid_t root, const std::vector<pid_t>& processes);
  // What the rank has counted in pages that it has closed: a rank that has left libhvd, or is about to end, has none
  // open.
  [[nodiscard]] RuntimeSample past(pid_t root) const;
  // Forgets all roots but these.
  void keep(const std::vector<pid_t>& roots);

 private:
  struct Page {
    Fd file;  // not open: none was found
    int pause = 0;
    int until_look = 0;
    // What the pages before have counted: a rank that leaves its job and joins it again has a new page, and counts
    // never go back.
    RuntimeSample past;
    RuntimeSample last;  // of this page, as told
  };

  static void look(Page& page, const std::vector<pid_t>& processes);

  std::map<pid_t, Page> pages_;
};

}  // namespace hvd::launch

// launcher/agent/guardian.h: where an agent has the files of its job.
#include "launcher/agent/guardian.h"

#include <string>

#include <doctest/doctest.h>

#include "tests/unit/launcher/folder.h"

namespace hvd::launch::guardian_test {

TEST_CASE("a TMPDIR of another machine gives way to /tmp where an engine has handed it on, and that is said") {
  const test::Folder folder;
  const std::string none = folder.path + "/none";
  test::write_file(folder.path + "/file", "");
  for (const bool is_called : {false, true}) {
    CHECK(scratch_base("", is_called).folder == "/tmp");
    CHECK(scratch_base(std::string(81, 'x'), is_called).folder == "/tmp");
    CHECK(scratch_base(folder.path, is_called).folder == folder.path);
    CHECK(scratch_base(folder.path, is_called).why.empty());
  }
  CHECK(scratch_base(none, false).folder == none);  // the user's own mistake, which is refused
  CHECK(scratch_base(none, true).folder == "/tmp");
  CHECK(scratch_base(none, true).why == "TMPDIR is " + none + ", which is no directory on this host; using /tmp");
  CHECK(scratch_base(folder.path + "/file", true).folder == "/tmp");
}

}  // namespace hvd::launch::guardian_test

// launcher/engines/slurm_notice: how Slurm tells a job's state and the time that it has left.
#include "launcher/engines/slurm_notice.h"

#include <filesystem>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "runtime/io/event_loop.h"
#include "tests/unit/launcher/folder.h"

namespace hvd::launch::slurm_notice_test {
namespace {

// What comes of a job about which a stand-in for squeue is asked: a script in `folder`.
std::string words_after(const test::Folder& folder, const std::string& script) {
  test::write_file(folder.path + "/squeue", "#!/bin/sh\n" + script);
  std::filesystem::permissions(folder.path + "/squeue", std::filesystem::perms::owner_all);
  const SteadyClock clock;
  const auto loop = EventLoop::create(clock);
  REQUIRE(loop.ok());
  SlurmNotice notice(*loop.value(), "3", {"PATH=" + folder.path + ":/usr/bin:/bin"}, [](const std::string&) {});
  const auto settled = notice.settle();
  return settled.ok() ? "it may come back" : settled.error().message();
}

}  // namespace

TEST_CASE("squeue is asked once more where the end of the job's processes has ended it") {
  const test::Folder folder;
  const std::string asked = folder.path + "/asked";
  CHECK(words_after(folder, "[ -e " + asked + " ] && exec echo 'CANCELLED|0:58'\n: >" + asked + "\nkill -TERM $$\n")
            .starts_with("Slurm says that it is CANCELLED"));
  CHECK(words_after(folder, "kill -TERM $$\n") == "squeue was killed by signal 15 (SIGTERM)");
  CHECK(words_after(folder, "echo 'RUNNING|0:58'\n") == "it may come back");
}

TEST_CASE("squeue says how a job is and how much time it has left") {
  CHECK(read_slurm_time("RUNNING|0:58") == SlurmTime{"RUNNING", "0:58"});
  CHECK(read_slurm_time("NODE_FAIL|  1-02:03:04") == SlurmTime{"NODE_FAIL", "1-02:03:04"});
  CHECK(read_slurm_time("RUNNING|UNLIMITED") == SlurmTime{"RUNNING", ""});
  CHECK(read_slurm_time("CANCELLED|") == SlurmTime{"CANCELLED", ""});
  CHECK(!read_slurm_time("squeue: error: a|b"));
  CHECK(!read_slurm_time("|0:58"));
}

TEST_CASE("a job's time limit is told where Slurm sets it") {
  CHECK(slurm_end_text({"SLURM_JOB_END_TIME=5400"}, 1676) == "; its time limit is in 1:02:04");
  CHECK(slurm_end_text({}, 1676).empty());
  CHECK(slurm_end_text({"SLURM_JOB_END_TIME=5400"}, 5400).empty());
  CHECK(slurm_end_text({"SLURM_JOB_END_TIME=4294967294"}, 5400).empty());  // it has none
}

}  // namespace hvd::launch::slurm_notice_test

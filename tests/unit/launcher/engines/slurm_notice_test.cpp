// launcher/engines/slurm_notice: how Slurm tells a job's state and the time that it has left.
#include "launcher/engines/slurm_notice.h"

#include <doctest/doctest.h>

namespace hvd::launch::slurm_notice_test {

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

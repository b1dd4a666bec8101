// launcher/agent/node_ranks.h: what the ranks of a node have in their environment.
#include "launcher/agent/node_ranks.h"

#include <string>
#include <vector>

#include <doctest/doctest.h>

namespace hvd::launch::node_ranks_test {

using Words = std::vector<std::string>;

TEST_CASE("a rank's environment is its node's, changed in order by the job, the rank and the user") {
  StartMessage start;
  start.unset = {"RANK", "GONE"};
  start.env = {{"PATH", "/job"}, {"OF_JOB", "1"}};
  start.last = {{"RANK_TOO", "the user's"}};
  start.proposed = {"OMP_NUM_THREADS", "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"};
  StartMessage::Rank rank;
  rank.env = {{"RANK", "3"},
              {"RANK_TOO", "3"},
              {"OMP_NUM_THREADS", "4"},
              {"NCCL_SOCKET_IFNAME", "=eth0"},
              {"GLOO_SOCKET_IFNAME", "eth0"}};
  CHECK(environment_of({"PATH=/node", "GONE=1", "RANK=9", "no entry"}, {}, start, rank) ==
        Words{"GLOO_SOCKET_IFNAME=eth0", "NCCL_SOCKET_IFNAME==eth0", "OF_JOB=1", "OMP_NUM_THREADS=4", "PATH=/job",
              "RANK=3", "RANK_TOO=the user's"});
  // What is only proposed gives way to the node's own: in its environment, or in its files.
  CHECK(
      environment_of({"OMP_NUM_THREADS=2"}, {"NCCL_SOCKET_IFNAME", "RANK"}, start, rank) ==
      Words{"GLOO_SOCKET_IFNAME=eth0", "OF_JOB=1", "OMP_NUM_THREADS=2", "PATH=/job", "RANK=3", "RANK_TOO=the user's"});
  start.unset.emplace_back("OMP_NUM_THREADS");
  CHECK(environment_of({"OMP_NUM_THREADS=2"}, {}, start, rank)[3] == "OMP_NUM_THREADS=4");
}

TEST_CASE("a rank's PWD is the folder in which it starts, unless the user has set another") {
  StartMessage start;
  start.cwd = "/home/you/project";
  StartMessage::Rank rank;
  CHECK(environment_of({"PWD=/home/you"}, {}, start, rank) == Words{"PWD=/home/you/project"});
  CHECK(environment_of({}, {}, start, rank) == Words{"PWD=/home/you/project"});
  start.last = {{"PWD", "/the/users"}};
  CHECK(environment_of({"PWD=/home/you"}, {}, start, rank) == Words{"PWD=/the/users"});
  start = {};
  start.cwd = ".";  // where the agent is
  CHECK(environment_of({"PWD=/home/you"}, {}, start, rank) == Words{"PWD=/home/you"});
}

}  // namespace hvd::launch::node_ranks_test

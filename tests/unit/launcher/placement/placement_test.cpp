// launcher/placement: from a host list to ranks on nodes, and their environment.
#include "launcher/placement/placement.h"

#include <map>
#include <random>

#include <doctest/doctest.h>

#include "launcher/job/host_list.h"
#include "launcher/placement/cpu_binding.h"
#include "launcher/placement/gpu_pinning.h"
#include "launcher/placement/rank_env.h"

namespace hvd::launch::placement_test {
namespace {

HostList hosts_of(const char* text) {
  auto hosts = parse_host_list(text);
  REQUIRE_MESSAGE(hosts.ok(), (hosts.ok() ? "" : hosts.error().message()));
  return hosts.value();
}

Placement placed(const char* hosts, int size) {
  auto placement = place(hosts_of(hosts), size);
  REQUIRE(placement.ok());
  return placement.value();
}

}  // namespace

TEST_CASE("a rank sees the GPUs of its job in the order of local ranks, or its own") {
  const std::vector<std::string> four = {"GPU-a", "GPU-b", "GPU-c", "GPU-d"};
  const Placement placement = placed("a:2,b:3@3,0,c:1@4", 6);
  const auto first = gpus_of_job(placement.nodes[0], four);
  REQUIRE(first.ok());
  // All that the node shows needs no word, and one rank has all of it.
  const JobGpus whole{"CUDA_VISIBLE_DEVICES", first.value(), true};
  CHECK(gpu_env(GpuMode::kLocal, whole, 1, 2) == EnvList{{"JAX_LOCAL_DEVICE_IDS", "1"}});
  CHECK(gpu_env(GpuMode::kLocal, whole, 0, 1) == EnvList{{"JAX_LOCAL_DEVICE_IDS", "0,1,2,3"}});
  CHECK(gpu_warning(GpuMode::kLocal, placement.nodes[0], first.value()).empty());
  const auto named = gpus_of_job(placement.nodes[1], four);
  REQUIRE(named.ok());
  const JobGpus part{"HIP_VISIBLE_DEVICES", named.value(), false};
  CHECK(gpu_env(GpuMode::kLocal, part, 0, 3) ==
        EnvList{{"HIP_VISIBLE_DEVICES", "GPU-d,GPU-a"}, {"JAX_LOCAL_DEVICE_IDS", "0"}});
  CHECK(gpu_env(GpuMode::kLocal, part, 2, 3) == gpu_env(GpuMode::kLocal, part, 0, 3));  // which share it
  CHECK(gpu_env(GpuMode::kOne, part, 2, 3) ==
        EnvList{{"HIP_VISIBLE_DEVICES", "GPU-d"}, {"JAX_LOCAL_DEVICE_IDS", "0"}, {"NCCL_MULTI_RANK_GPU_ENABLE", "1"}});
  CHECK(gpu_env(GpuMode::kOne, whole, 1, 2) ==
        EnvList{{"CUDA_VISIBLE_DEVICES", "GPU-b"}, {"JAX_LOCAL_DEVICE_IDS", "0"}});
  CHECK(gpu_env(GpuMode::kNone, part, 2, 3).empty());
  CHECK(gpu_env(GpuMode::kLocal, {}, 0, 1).empty());
  CHECK(gpu_warning(GpuMode::kOne, placement.nodes[1], named.value()) ==
        "3 ranks on b for 2 GPUs: ranks 2,4 share GPU-d; ranks 3 share GPU-a");
  CHECK(gpu_warning(GpuMode::kLocal, placement.nodes[1], named.value()).find("--gpus one") != std::string::npos);
  const auto absent = gpus_of_job(placement.nodes[2], four);
  REQUIRE(!absent.ok());
  CHECK(absent.error().message().find("c has GPUs 0-3, and the host list names GPU 4") == 0);
}

TEST_CASE("ranks fill the hosts in order, and cross ranks count nodes that have the local rank") {
  const Placement placement = placed("a:2,b:3", 5);
  REQUIRE(placement.nodes.size() == 2);
  CHECK(placement.nodes[0].ranks == std::vector<RankPlan>{{0, 0, 0, 2}, {1, 1, 0, 2}});
  CHECK(placement.nodes[1].ranks == std::vector<RankPlan>{{2, 0, 1, 2}, {3, 1, 1, 2}, {4, 2, 0, 1}});
  CHECK(placement.node_of(1).host.name == "a");
  CHECK(placement.node_of(4).host.name == "b");
}

TEST_CASE("fewer ranks than slots use only as many, and hosts without ranks are no nodes") {
  const Placement placement = placed("a:2,b:2", 2);
  CHECK(placement.nodes.size() == 1);
  CHECK(placed("a:2,b:2", 0).size == 4);
}

TEST_CASE("more ranks than slots is an error that says what to write") {
  const auto placement = place(hosts_of("a:1,b:1"), 3);
  REQUIRE(!placement.ok());
  CHECK(placement.error().message().find("the hosts have 2 slots") != std::string::npos);
  CHECK(!place(hosts_of("a:1"), -1).ok());
}

TEST_CASE("every placement numbers ranks and local ranks without gaps") {
  std::mt19937 random(3);
  for (int i = 0; i < 2000; ++i) {
    HostList hosts;
    int slots = 0;
    for (std::size_t n = 1 + random() % 6; n > 0; --n) {
      hosts.push_back(HostSpec{"h" + std::to_string(n), "", 0, static_cast<int>(1 + random() % 5)});
      slots += hosts.back().slots;
    }
    const int size = 1 + static_cast<int>(random() % static_cast<unsigned>(slots));
    const auto placement = place(hosts, size);
    REQUIRE(placement.ok());
    int rank = 0;
    std::map<int, int> seen_with_local_rank;
    for (const NodePlan& node : placement.value().nodes) {
      for (std::size_t j = 0; j < node.ranks.size(); ++j) {
        CHECK(node.ranks[j].rank == rank++);
        CHECK(node.ranks[j].local_rank == static_cast<int>(j));
        CHECK(node.ranks[j].cross_rank == seen_with_local_rank[static_cast<int>(j)]++);
      }
    }
    CHECK(rank == size);
    for (const NodePlan& node : placement.value().nodes) {
      for (const RankPlan& plan : node.ranks) {
        CHECK(plan.cross_size == seen_with_local_rank[plan.local_rank]);
      }
    }
  }
}

TEST_CASE("the rank environment names the rank to every framework") {
  const Placement placement = placed("a:2,b:3", 5);
  const JobFacts job{"id", "token", "10.0.0.1", 5000, false};
  const EnvList list = rank_env(placement, placement.nodes[1], placement.nodes[1].ranks[2],
                                NodeFacts{"10.0.0.2", "/s/agent", "eth0", true}, job, 2);
  const std::map<std::string, std::string> env(list.begin(), list.end());
  CHECK(env.size() == list.size());
  for (const char* name : {"HVD_RANK", "HOROVOD_RANK", "RANK", "OMPI_COMM_WORLD_RANK", "ROLE_RANK"}) {
    CHECK(env.at(name) == "4");
  }
  CHECK(env.at("WORLD_SIZE") == "5");
  CHECK(env.at("LOCAL_RANK") == "2");
  CHECK(env.at("HOROVOD_CROSS_SIZE") == "1");
  CHECK(env.at("MASTER_ADDR") == "10.0.0.1");
  CHECK(env.at("HVD_NODE_ADDRESS") == "10.0.0.2");
  CHECK(env.at("OMP_NUM_THREADS") == "2");
  CHECK(env.at("JAX_COORDINATOR_ADDRESS") == "10.0.0.1:5000");
  CHECK(env.at("JAX_PROCESS_ID") == "4");
  CHECK(env.at("GLOO_SOCKET_IFNAME") == "eth0");
  CHECK(env.at("NCCL_SOCKET_IFNAME") == "=eth0");
  CHECK(!env.contains("PET_NNODES"));
  const EnvList v6 = rank_env(placement, placement.nodes[0], placement.nodes[0].ranks[0], {},
                              JobFacts{"id", "token", "fd00::1", 5000, 0}, 0);
  const std::map<std::string, std::string> of_v6(v6.begin(), v6.end());
  CHECK(of_v6.at("JAX_COORDINATOR_ADDRESS") == "[fd00::1]:5000");
  CHECK(of_v6.at("MASTER_ADDR") == "fd00::1");
  CHECK(!of_v6.contains("OMP_NUM_THREADS"));
  const Placement one_each = placed("a:1,b:1", 2);
  const EnvList each = rank_env(one_each, one_each.nodes[1], one_each.nodes[1].ranks[0], {}, job, 2);
  CHECK(std::map<std::string, std::string>(each.begin(), each.end()).at("PET_NNODES") == "2");
  CHECK(std::map<std::string, std::string>(each.begin(), each.end()).at("PET_NODE_RANK") == "1");
  for (const auto& [name, value] : rank_env(placement, placement.nodes[0], placement.nodes[0].ranks[0], {}, job, 2)) {
    CHECK(name.find("_SOCKET_IFNAME") == std::string::npos);  // the node has not told the address's interface
  }
}

TEST_CASE("ranks are bound to their part of the cores, near their GPUs") {
  // Two memory nodes with two cores of two threads each; processors are numbered as is usual: threads of a core apart.
  const std::vector<CpuCore> cores = {{0, {0, 4}}, {0, {1, 5}}, {1, {2, 6}}, {1, {3, 7}}};
  const auto bound = [&cores](BindMode mode, int ranks, const std::vector<std::int32_t>& near = {}) {
    std::vector<std::string> texts;
    for (const RankCpus& rank : bind_ranks(mode, cores, ranks, near)) {
      texts.push_back(cpu_list_text(rank.cpus) + " /" + std::to_string(rank.threads));
    }
    return texts;
  };
  using Texts = std::vector<std::string>;
  CHECK(bound(BindMode::kNone, 2) == Texts{" /4", " /4"});
  CHECK(bound(BindMode::kNone, 16).front() == " /1");
  CHECK(bound(BindMode::kNone, 1) == Texts{" /0"});  // it has all, and needs no word
  // The control groups leave less than the processors that the ranks may run on.
  CHECK(bind_ranks(BindMode::kNone, cores, 2, {}, 5).front().threads == 2);
  CHECK(bind_ranks(BindMode::kNone, cores, 1, {}, 5).front().threads == 5);
  CHECK(bind_ranks(BindMode::kNone, cores, 1, {}, 8).front().threads == 0);
  CHECK(bind_ranks(BindMode::kCore, cores, 2, {}, 1.5).front().threads == 1);
  CHECK(bound(BindMode::kNuma, 1) == Texts{"0-7 /8"});
  CHECK(bound(BindMode::kNuma, 2) == Texts{"0,1,4,5 /4", "2,3,6,7 /4"});
  CHECK(bound(BindMode::kNuma, 4) == Texts{"0,1,4,5 /2", "0,1,4,5 /2", "2,3,6,7 /2", "2,3,6,7 /2"});
  CHECK(bound(BindMode::kCore, 1) == Texts{"0-7 /8"});
  CHECK(bound(BindMode::kCore, 2) == Texts{"0,1,4,5 /4", "2,3,6,7 /4"});
  CHECK(bound(BindMode::kCore, 4) == Texts{"0,4 /2", "1,5 /2", "2,6 /2", "3,7 /2"});
  CHECK(bound(BindMode::kCore, 3) == Texts{"0,4 /2", "1,5 /2", "2,3,6,7 /4"});
  // More ranks than cores: each still has one, and those that share it also share its threads.
  CHECK(bound(BindMode::kCore, 6) == Texts{"0,4 /1", "0,4 /1", "1,5 /2", "2,6 /1", "2,6 /1", "3,7 /2"});
  // GPUs say where: both on node 1, in the other order, unknown, and on a node without cores for us.
  CHECK(bound(BindMode::kNuma, 2, {1, 1}) == Texts{"2,3,6,7 /2", "2,3,6,7 /2"});
  CHECK(bound(BindMode::kCore, 2, {1, 1}) == Texts{"2,6 /2", "3,7 /2"});
  CHECK(bound(BindMode::kNuma, 2, {1, 0}) == Texts{"2,3,6,7 /4", "0,1,4,5 /4"});
  CHECK(bound(BindMode::kNuma, 2, {-1, 9}) == Texts{"0,1,4,5 /4", "2,3,6,7 /4"});
  // A node that tells nothing binds nobody.
  CHECK(bind_ranks(BindMode::kCore, {}, 2, {}).front().cpus.empty());

  const Placement placement = placed("a:5", 5);
  CHECK(bind_warning(BindMode::kCore, placement.nodes[0], cores) ==
        "5 ranks on a for 4 cores: some share one (--bind core)");
  CHECK(bind_warning(BindMode::kNuma, placement.nodes[0], cores).empty());
  CHECK(bind_warning(BindMode::kCore, placed("a:4", 4).nodes[0], cores).empty());
}

TEST_CASE("variables of an outer launcher are scrubbed, those of this host stay here") {
  for (const char* name :
       {"RANK", "OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PET_NNODES", "TORCHELASTIC_RUN_ID", "HVD_AGENT_TOKEN"}) {
    CHECK(is_outer_launcher_variable(name));
  }
  for (const char* name : {"HOME", "KRB5CCNAME", "SLURMD_NODENAME", "SSH_AUTH_SOCK", "NVIDIA_CUDA_VISIBLE_DEVICES",
                           "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK", "BASH_FUNC_x%%", "TMPDIR"}) {
    CHECK(is_host_bound_variable(name));
  }
  for (const char* name : {"PATH", "NCCL_DEBUG", "HOROVOD_FUSION_THRESHOLD", "LD_LIBRARY_PATH", "RANKING"}) {
    CHECK(!is_outer_launcher_variable(name));
    CHECK(!is_host_bound_variable(name));
  }
}

}  // namespace hvd::launch::placement_test

#include "runtime/abi/config.h"

#include <map>
#include <utility>

#include <doctest/doctest.h>

namespace hvd::config_test {
namespace {

using Variables = std::map<std::string, std::string>;

Result<Config> config_of(const Variables& variables) {
  return config_from([&variables](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

const Variables kRankEnvironment = {{"HVD_RANK", "5"},
                                    {"HVD_SIZE", "8"},
                                    {"HVD_LOCAL_RANK", "1"},
                                    {"HVD_LOCAL_SIZE", "4"},
                                    {"HVD_CROSS_RANK", "1"},
                                    {"HVD_CROSS_SIZE", "2"},
                                    {"HVD_NODE_INDEX", "1"},
                                    {"HVD_NODE_COUNT", "2"},
                                    {"HVD_AGENT_SOCKET", "/tmp/a"},
                                    {"HVD_AGENT_TOKEN", "00ff"},
                                    {"HVD_NODE_ADDRESS", "10.0.0.2"},
                                    {"HVD_TCP_CONGESTION", "cubic"}};

Variables changed(const std::string& name, const std::string& value) {
  Variables variables = kRankEnvironment;
  variables[name] = value;
  return variables;
}

}  // namespace

TEST_CASE("without a rank environment a process is a job of one rank") {
  const auto config = config_of({});
  REQUIRE(config.ok());
  CHECK(config.value().map.rank == 0);
  CHECK(config.value().map.size == 1);
  CHECK(config.value().agent_socket.empty());
  CHECK(config.value().engine.fusion_threshold_bytes == 128U << 20U);
  CHECK(config.value().start_timeout == std::chrono::seconds(60));
}

TEST_CASE("the rank environment becomes the rank map") {
  const auto config = config_of(kRankEnvironment);
  REQUIRE(config.ok());
  const RankMap& map = config.value().map;
  CHECK(map.rank == 5);
  CHECK(map.size == 8);
  CHECK(map.local_rank == 1);
  CHECK(map.local_size == 4);
  CHECK(map.cross_rank == 1);
  CHECK(map.cross_size == 2);
  CHECK(map.node_index == 1);
  CHECK(map.node_count == 2);
  CHECK(config.value().agent_socket == "/tmp/a");
  CHECK(config.value().agent_token == "00ff");
  CHECK(config.value().engine.mesh.node_address == "10.0.0.2");
  CHECK(config.value().engine.mesh.congestion == "cubic");
}

TEST_CASE("tuning is read in its units") {
  const auto config = config_of({{"HOROVOD_FUSION_THRESHOLD", "0"},
                                 {"HOROVOD_CYCLE_TIME", "2.5"},
                                 {"HOROVOD_START_TIMEOUT", "7"},
                                 {"HOROVOD_LOG_LEVEL", "DEBUG"}});
  REQUIRE(config.ok());
  CHECK(config.value().engine.fusion_threshold_bytes == 0);
  CHECK(config.value().engine.cycle_time == std::chrono::microseconds(2500));
  CHECK(config.value().start_timeout == std::chrono::seconds(7));
  CHECK(config.value().log_level == LogLevel::kDebug);
  CHECK(config_of({{"HOROVOD_CYCLE_TIME", ""}}).ok());
}

TEST_CASE("a log level has the names that scripts give it") {
  const std::pair<const char*, LogLevel> named[] = {{"trace", LogLevel::kDebug},  {"Info", LogLevel::kInfo},
                                                    {"WARN", LogLevel::kWarning}, {"WARNING", LogLevel::kWarning},
                                                    {"FATAL", LogLevel::kError},  {"OFF", LogLevel::kError}};
  for (const auto& each : named) {
    CAPTURE(each.first);
    const auto config = config_of({{"HOROVOD_LOG_LEVEL", each.first}});
    REQUIRE(config.ok());
    CHECK(config.value().log_level == each.second);
  }
}

TEST_CASE("groups travel with others unless that is turned off") {
  CHECK(config_of({}).value().engine.fuses_groups);
  CHECK(config_of({{"HOROVOD_DISABLE_GROUP_FUSION", "0"}}).value().engine.fuses_groups);
  CHECK(config_of({}).value().engine.cache_capacity == 1024);
  CHECK(config_of({{"HOROVOD_CACHE_CAPACITY", "0"}}).value().engine.cache_capacity == 0);
  CHECK(config_of({{"HOROVOD_CACHE_CAPACITY", "1000000"}}).value().engine.cache_capacity == 65536);
  CHECK_FALSE(config_of({{"HOROVOD_CACHE_CAPACITY", "-1"}}).ok());
  CHECK_FALSE(config_of({{"HOROVOD_DISABLE_GROUP_FUSION", "1"}}).value().engine.fuses_groups);
}

TEST_CASE("the engine's thread gets its local rank's core, or the one that is named") {
  const auto core_of = [](Config config) -> Result<std::optional<int>> {
    HVD_TRY(choose_by_place(config));
    return config.engine.thread_core;
  };
  CHECK(core_of(config_of(kRankEnvironment).value()).value() == std::nullopt);
  CHECK(core_of(config_of(changed("HOROVOD_THREAD_AFFINITY", "4,5,6,7")).value()).value() == 5);
  CHECK(core_of(config_of(changed("HOROVOD_THREAD_AFFINITY", "3")).value()).value() == 3);
  const auto few = core_of(config_of(changed("HOROVOD_THREAD_AFFINITY", "1,2")).value());
  REQUIRE_FALSE(few.ok());
  CHECK(few.error().message().find("2 cores for the 4 ranks of a node") != std::string::npos);
}

TEST_CASE("a rank that mpirun has started learns its core and its GPU when the ranks have met") {
  Config config = config_of({{"OMPI_COMM_WORLD_SIZE", "4"}, {"HOROVOD_THREAD_AFFINITY", "4,5,6,7"}}).value();
  config.place = config.map;
  config.place->local_rank = 2;
  config.place->local_size = 4;
  REQUIRE(choose_by_place(config).ok());
  CHECK(config.engine.thread_core == 6);
  CHECK(config.engine.devices.usual_device == 2);
  config.place->local_size = 5;
  CHECK_FALSE(choose_by_place(config).ok());
}

TEST_CASE("autotune has Horovod's defaults, and keeps what is set by hand") {
  const AutotuneOptions off = config_of({}).value().engine.autotune;
  CHECK_FALSE(off.is_on);
  CHECK(off.warmup_samples == 3);
  CHECK(off.steps_per_sample == 10);
  CHECK(off.max_samples == 20);
  CHECK(off.noise == 0.8);
  const auto config = config_of({{"HOROVOD_AUTOTUNE", "1"},
                                 {"HOROVOD_AUTOTUNE_LOG", "/tmp/log.csv"},
                                 {"HOROVOD_AUTOTUNE_WARMUP_SAMPLES", "0"},
                                 {"HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", "7"},
                                 {"HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES", "9"},
                                 {"HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE", "0.25"},
                                 {"HOROVOD_CYCLE_TIME", "3"}});
  REQUIRE(config.ok());
  const AutotuneOptions& on = config.value().engine.autotune;
  CHECK(on.is_on);
  CHECK(on.log_path == "/tmp/log.csv");
  CHECK(on.warmup_samples == 0);
  CHECK(on.steps_per_sample == 7);
  CHECK(on.max_samples == 9);
  CHECK(on.noise == 0.25);
  CHECK(on.keeps_window);
  CHECK_FALSE(on.keeps_fusion);
}

TEST_CASE("a bad value is an error that names variable and value") {
  const Variables bad[] = {{{"HOROVOD_FUSION_THRESHOLD", "-1"}},
                           {{"HOROVOD_FUSION_THRESHOLD", "64MB"}},
                           {{"HOROVOD_CYCLE_TIME", "fast"}},
                           {{"HOROVOD_CYCLE_TIME", "nan"}},
                           {{"HOROVOD_START_TIMEOUT", "0"}},
                           {{"HOROVOD_LOG_LEVEL", "loud"}},
                           {{"HOROVOD_THREAD_AFFINITY", "1,x"}},
                           {{"HOROVOD_THREAD_AFFINITY", "0,"}},
                           {{"HOROVOD_THREAD_AFFINITY", "-1"}},
                           {{"HOROVOD_THREAD_AFFINITY", "4096"}},
                           {{"HOROVOD_AUTOTUNE", "maybe"}},
                           {{"HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", "0"}},
                           {{"HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE", "1.5"}}};
  for (const Variables& variables : bad) {
    const auto config = config_of(variables);
    REQUIRE_FALSE(config.ok());
    CHECK(config.error().code() == Code::kInvalid);
    CHECK(config.error().message().find(variables.begin()->first + " is '" + variables.begin()->second + "'") == 0);
  }
  for (const auto& [name, value] : Variables{{"HVD_RANK", "8"},
                                             {"HVD_RANK", "-1"},
                                             {"HVD_RANK", "1x"},
                                             {"HVD_SIZE", "0"},
                                             {"HVD_LOCAL_RANK", "4"},
                                             {"HVD_NODE_INDEX", "2"},
                                             {"HVD_CROSS_SIZE", "99999999999"}}) {
    const auto config = config_of(changed(name, value));
    REQUIRE_FALSE(config.ok());
    CHECK(config.error().message().find(name + " is '" + value + "'") == 0);
  }
}

TEST_CASE("half a rank environment is an error that names what is missing") {
  for (const auto& [name, value] : kRankEnvironment) {
    if (name == "HVD_AGENT_TOKEN" || name == "HVD_NODE_ADDRESS" || name == "HVD_TCP_CONGESTION") {
      continue;
    }
    Variables variables = kRankEnvironment;
    variables.erase(name);
    const auto config = config_of(variables);
    REQUIRE_FALSE(config.ok());
    CHECK(config.error().message().find(name + " is not set") == 0);
    CHECK(config.error().message().find("hvdrun") != std::string::npos);
  }
}

TEST_CASE("the stall watch is set as Horovod's is") {
  const auto stall_of = [](const Variables& variables) { return config_of(variables).value().engine.stall; };
  CHECK(stall_of({}).warn_after == std::chrono::seconds(60));
  CHECK(stall_of({}).end_after == Duration::zero());
  CHECK(stall_of({{"HOROVOD_STALL_CHECK_TIME_SECONDS", "0.5"}}).warn_after == std::chrono::milliseconds(500));
  CHECK(stall_of({{"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "90"}}).end_after == std::chrono::seconds(90));
  CHECK(stall_of({{"HOROVOD_STALL_CHECK_DISABLE", "1"}}).warn_after == Duration::zero());
  CHECK(stall_of({{"HOROVOD_STALL_CHECK_DISABLE", "0"}}).warn_after == std::chrono::seconds(60));
  const auto early = stall_of({{"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "15"}});  // before the first report
  CHECK((early.warn_after == std::chrono::seconds(15) && early.end_after == std::chrono::seconds(15)));
  CHECK_FALSE(config_of({{"HOROVOD_STALL_CHECK_TIME_SECONDS", "-1"}}).ok());
  CHECK_FALSE(config_of({{"HOROVOD_STALL_CHECK_DISABLE", "maybe"}}).ok());
}

TEST_CASE("ranks that mpirun or srun has started are told from hvdrun's") {
  struct Started {
    Variables variables;
    bool is_by_mpi;
    int told_size;
    bool prefers_mpich;
  };
  const Variables in_hvdruns_job = {{"HVD_RANK", "0"},       {"HVD_SIZE", "1"},       {"HVD_LOCAL_RANK", "0"},
                                    {"HVD_LOCAL_SIZE", "1"}, {"HVD_CROSS_RANK", "0"}, {"HVD_CROSS_SIZE", "1"},
                                    {"HVD_NODE_INDEX", "0"}, {"HVD_NODE_COUNT", "1"}, {"OMPI_COMM_WORLD_SIZE", "1"}};
  const auto within_hvdrun = [&](const char* name, const char* value) {
    Variables variables = in_hvdruns_job;
    variables[name] = value;
    return variables;
  };
  const Started cases[] = {
      {{{"OMPI_COMM_WORLD_SIZE", "2"}}, true, 2, false},
      {{{"OMPI_COMM_WORLD_SIZE", "1"}, {"PMIX_RANK", "0"}}, false, 0, false},
      {{{"PMI_SIZE", "4"}}, true, 4, true},
      {{{"PMI_SIZE", "4"}, {"PMIX_RANK", "3"}}, true, 4, false},
      {{{"PMI_SIZE", "4"}, {"OMPI_COMM_WORLD_SIZE", "2"}}, true, 2, false},
      // An mpirun of MPICH's within a rank of Open MPI's.
      {{{"PMI_SIZE", "4"}, {"OMPI_COMM_WORLD_SIZE", "1"}, {"PMIX_RANK", "0"}}, true, 4, true},
      {{{"PMI_SIZE", "1"}}, false, 0, false},
      {{{"PMIX_RANK", "0"}}, true, 0, false},
      {{{"PMIX_RANK", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}}, false, 0, false},
      {{{"PMIX_RANK", "0"}, {"SLURM_STEP_NUM_TASKS", "8"}}, true, 8, false},
      {{{"SLURM_STEP_NUM_TASKS", "8"}}, false, 0, false},
      {{{"PMI_SIZE", "1"}, {"SLURM_STEP_NUM_TASKS", "8"}}, false, 0, false},
      {{{"PMIX_RANK", "0"}, {"PMI_SIZE", "1"}}, false, 0, false},
      // A step by PMIx, asked for in a shell that was a step of one task by PMI.
      {{{"PMIX_RANK", "0"}, {"PMI_SIZE", "1"}, {"SLURM_STEP_NUM_TASKS", "8"}}, true, 8, false},
      // Open MPI's daemons, which srun has started on eight nodes, for one rank.
      {{{"PMIX_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}, {"SLURM_STEP_NUM_TASKS", "8"}}, false, 0, false},
      {changed("OMPI_COMM_WORLD_SIZE", "8"), false, 0, false},
      {changed("PMI_SIZE", "8"), false, 0, false},
      {in_hvdruns_job, false, 0, false},
      {within_hvdrun("OMPI_COMM_WORLD_SIZE", "3"), true, 3, false},
      {within_hvdrun("PMIX_RANK", "0"), false, 0, false},
      {{}, false, 0, false}};
  for (const Started& started : cases) {
    const auto config = config_of(started.variables);
    REQUIRE(config.ok());
    const MpiSettings& mpi = config.value().mpi;
    CHECK(mpi.has_started_ranks == started.is_by_mpi);
    CHECK(mpi.told_size == started.told_size);
    CHECK(mpi.told_by.empty() != started.is_by_mpi);
    CHECK(mpi.prefers_mpich == started.prefers_mpich);
    CHECK((config.value().map.size == 1) == (started.is_by_mpi || started.variables.count("HVD_AGENT_SOCKET") == 0));
  }
}

TEST_CASE("a rank that was started as one of several and knows of none of them says so") {
  const auto words = [](const Variables& variables) { return config_of(variables).value().alone; };
  CHECK(words({}).empty());
  CHECK(
      words({{"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_PROCID", "0"}}) ==
      "srun has started 2 tasks (SLURM_STEP_NUM_TASKS), and this rank runs alone; start them with srun --mpi=pmix, or "
      "with hvdrun");
  CHECK(words({{"SLURM_STEP_NUM_TASKS", "1"}}).empty());
  CHECK(words({{"SLURM_STEP_NUM_TASKS", "many"}}).empty());
  CHECK(words({{"WORLD_SIZE", "3"}, {"TORCHELASTIC_RUN_ID", "none"}}) ==
        "torchrun has started 3 ranks (WORLD_SIZE), and this one runs alone; start them with hvdrun");
  CHECK(words({{"WORLD_SIZE", "3"}}).empty());
  CHECK(words({{"HOROVOD_SIZE", "4"}, {"HOROVOD_RANK", "1"}}) ==
        "a launcher of Horovod's has started 4 ranks (HOROVOD_SIZE), and this one runs alone; start them with hvdrun");
  for (const char* launchers : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK"}) {
    CHECK(words({{"SLURM_STEP_NUM_TASKS", "2"}, {"HOROVOD_SIZE", "2"}, {launchers, "1"}}).empty());
  }
  CHECK(words(changed("SLURM_STEP_NUM_TASKS", "2")).empty());
}

TEST_CASE("a rank that a launcher of Horovod's tells where to meet the others is refused") {
  const char* const address = "HOROVOD_GLOO_RENDEZVOUS_ADDR";
  const auto refused = config_of({{"HOROVOD_SIZE", "4"}, {"HOROVOD_RANK", "1"}, {address, "10.0.0.1"}});
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().message() ==
        "a launcher of Horovod's has started this rank, to meet the others at 10.0.0.1 (HOROVOD_GLOO_RENDEZVOUS_ADDR), "
        "which libhvd cannot; start the ranks with hvdrun");
  CHECK(config_of({{"HOROVOD_SIZE", "1"}, {address, "10.0.0.1"}}).ok());
  CHECK(config_of({{"HOROVOD_SIZE", "4"}, {address, "10.0.0.1"}, {"OMPI_COMM_WORLD_SIZE", "1"}}).ok());
}

TEST_CASE("a switch is a number or a word") {
  const auto is_on = [](const char* text) {
    return config_of({{"HOROVOD_AUTOTUNE", text}}).value().engine.autotune.is_on;
  };
  for (const char* on : {"1", "2", "-1", "True", "YES", "on"}) {
    CHECK(is_on(on));
  }
  for (const char* off : {"", "0", "false", "No", "OFF"}) {
    CHECK_FALSE(is_on(off));
  }
  CHECK_FALSE(config_of({{"HOROVOD_AUTOTUNE", "maybe"}}).ok());
}

TEST_CASE("a process that no launcher has told anything is known as such") {
  const auto is_untold = [](const Variables& variables) { return config_of(variables).value().has_no_launcher; };
  CHECK(is_untold({}));
  CHECK(is_untold({{"HVD_RANK", ""}}));  // as a shell leaves it
  CHECK_FALSE(is_untold(changed("HVD_RANK", "0")));
  CHECK_FALSE(is_untold({{"SLURM_STEP_NUM_TASKS", "2"}}));
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK", "TORCHELASTIC_RUN_ID"}) {
    CHECK_FALSE(is_untold({{name, "1"}}));
  }
}

TEST_CASE("the data plane is MPI where that is asked for, and an unknown one is refused by name") {
  CHECK_FALSE(config_of({}).value().mpi.moves_data);
  CHECK_FALSE(config_of({{"HOROVOD_CPU_OPERATIONS", "GLOO"}}).value().mpi.moves_data);
  CHECK(config_of({{"HOROVOD_CPU_OPERATIONS", "MPI"}}).value().mpi.moves_data);
  CHECK(config_of({}).value().mpi.wants_all_threads);
  CHECK_FALSE(config_of({{"HOROVOD_MPI_THREADS_DISABLE", "1"}}).value().mpi.wants_all_threads);
  for (const char* library_of_horovod : {"CCL", "mlsl"}) {
    CHECK_FALSE(config_of({{"HOROVOD_CPU_OPERATIONS", library_of_horovod}}).value().mpi.moves_data);
  }
  const auto other = config_of({{"HOROVOD_CPU_OPERATIONS", "cll"}});
  REQUIRE_FALSE(other.ok());
  CHECK(other.error().message() ==
        "HOROVOD_CPU_OPERATIONS is 'cll', expected mpi (data goes over MPI) or gloo (over libhvd's own links)");
}

TEST_CASE("what moves data between GPUs is said for all operations, and for each kind") {
  const OpKind kinds[] = {OpKind::kAllreduce, OpKind::kAllgather, OpKind::kBroadcast, OpKind::kAlltoall,
                          OpKind::kReducescatter};
  const auto by_nccl = [&](const Variables& variables) {
    std::vector<bool> all;
    const auto config = config_of(variables);
    REQUIRE(config.ok());
    for (const OpKind kind : kinds) {
      all.push_back(config.value().engine.devices.uses_nccl[static_cast<std::size_t>(kind)]);
    }
    return all;
  };
  const std::vector<bool> all(5, true);
  const std::vector<bool> none(5, false);
  CHECK(by_nccl({}) == all);
  CHECK(by_nccl({{"HOROVOD_GPU_OPERATIONS", ""}}) == all);
  CHECK(by_nccl({{"HOROVOD_GPU_OPERATIONS", "NCCL"}}) == all);
  CHECK(by_nccl({{"HOROVOD_GPU_OPERATIONS", "CCL"}, {"HOROVOD_GPU_ALLREDUCE", "DDL"}}) == all);
  CHECK(by_nccl({{"HOROVOD_GPU_OPERATIONS", "MPI"}}) == none);
  CHECK(by_nccl({{"HOROVOD_GPU_OPERATIONS", "none"}}) == none);
  // A kind's own word is stronger than that for all, both ways.
  CHECK(by_nccl({{"HOROVOD_GPU_OPERATIONS", "none"}, {"HOROVOD_GPU_ALLREDUCE", "nccl"}}) ==
        std::vector<bool>{true, false, false, false, false});
  CHECK(by_nccl({{"HOROVOD_GPU_ALLGATHER", "mpi"}, {"HOROVOD_GPU_ALLTOALL", "None"}}) ==
        std::vector<bool>{true, false, true, false, true});
  CHECK(by_nccl({{"HOROVOD_GPU_BROADCAST", "MPI"}, {"HOROVOD_GPU_REDUCESCATTER", "MPI"}}) ==
        std::vector<bool>{true, true, false, true, false});
}

TEST_CASE("a word for GPUs that is not known is refused by its variable's name") {
  for (const char* name : {"HOROVOD_GPU_OPERATIONS", "HOROVOD_GPU_ALLREDUCE", "HOROVOD_GPU_ALLGATHER",
                           "HOROVOD_GPU_BROADCAST", "HOROVOD_GPU_ALLTOALL", "HOROVOD_GPU_REDUCESCATTER"}) {
    const auto refused = config_of({{name, "NCLL"}});
    REQUIRE_FALSE(refused.ok());
    CHECK(refused.error().message() ==
          std::string(name) + " is 'ncll', expected NCCL, or MPI or none (through the host's memory)");
  }
  CHECK_FALSE(config_of({{"HOROVOD_ENABLE_ASYNC_COMPLETION", "perhaps"}}).ok());
}

TEST_CASE("the file of NCCL and the end of operations on streams are taken from the environment") {
  CHECK(config_of({}).value().engine.devices.nccl_library.empty());
  CHECK_FALSE(config_of({}).value().engine.devices.completes_early);
  const auto config = config_of({{"HVD_NCCL_LIBRARY", "/opt/libnccl.so.2"}, {"HOROVOD_ENABLE_ASYNC_COMPLETION", "1"}});
  REQUIRE(config.ok());
  CHECK(config.value().engine.devices.nccl_library == "/opt/libnccl.so.2");
  CHECK(config.value().engine.devices.completes_early);
}

TEST_CASE("HVD_LINK_SECURITY encrypts what leaves a host, or is refused") {
  const auto sealed = config_of(changed("HVD_LINK_SECURITY", "Encrypt"));
  REQUIRE(sealed.ok());
  CHECK(sealed.value().engine.mesh.is_sealed);
  CHECK(sealed.value().engine.devices.stays_on_host);
  for (const char* plain : {"plain", ""}) {
    const auto config = config_of(changed("HVD_LINK_SECURITY", plain));
    REQUIRE(config.ok());
    CHECK_FALSE(config.value().engine.mesh.is_sealed);
    CHECK_FALSE(config.value().engine.devices.stays_on_host);
  }
  const auto unknown = config_of(changed("HVD_LINK_SECURITY", "yes"));
  REQUIRE_FALSE(unknown.ok());
  CHECK(unknown.error().message().find("HVD_LINK_SECURITY is 'yes', expected encrypt") == 0);
  Variables by_mpi = changed("HVD_LINK_SECURITY", "encrypt");
  by_mpi["HOROVOD_CPU_OPERATIONS"] = "mpi";
  const auto refused = config_of(by_mpi);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().message().find("HOROVOD_CPU_OPERATIONS=mpi sends data over MPI, which encrypts nothing") !=
        std::string::npos);
}

}  // namespace hvd::config_test

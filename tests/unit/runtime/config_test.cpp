#include "runtime/abi/config.h"

#include <map>

#include <doctest/doctest.h>

#include "runtime/engine/executor.h"

namespace hvd {
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
                                    {"HVD_NODE_ADDRESS", "10.0.0.2"}};

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

TEST_CASE("a bad value is an error that names variable and value") {
  const Variables bad[] = {{{"HOROVOD_FUSION_THRESHOLD", "-1"}}, {{"HOROVOD_FUSION_THRESHOLD", "64MB"}},
                           {{"HOROVOD_CYCLE_TIME", "fast"}},     {{"HOROVOD_CYCLE_TIME", "nan"}},
                           {{"HOROVOD_START_TIMEOUT", "0"}},     {{"HOROVOD_LOG_LEVEL", "loud"}}};
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
    if (name == "HVD_AGENT_TOKEN" || name == "HVD_NODE_ADDRESS") {
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

TEST_CASE("an average of equal integers is that integer, for any number of ranks") {
  for (int size = 1; size <= 2000; ++size) {
    const double factor = result_factor(ReduceOp::kAverage, Dtype::kInt64, 1.0, size);
    for (const std::int64_t value : {1, -1, 3, -7, 1'000'000'007}) {
      const auto sum = static_cast<double>(value * size);
      CHECK(static_cast<std::int64_t>(sum * factor) == value);
      // One short of a multiple stays below it: the nudge must not round up.
      CHECK(static_cast<std::int64_t>((std::abs(sum) - 1) * factor) == (std::abs(value * size) - 1) / size);
    }
  }
  CHECK(result_factor(ReduceOp::kAverage, Dtype::kFloat32, 1.0, 3) == 1.0 / 3);
  CHECK(result_factor(ReduceOp::kSum, Dtype::kInt32, 2.0, 3) == 2.0);
  CHECK(result_factor(ReduceOp::kAverage, Dtype::kInt32, 0.0, 3) == 0.0);
}

TEST_CASE("the stall watch is set as Horovod's is") {
  const auto stall_of = [](const Variables& variables) { return config_of(variables).value().engine.stall; };
  CHECK(stall_of({}).warn_after == std::chrono::seconds(60));
  CHECK(stall_of({}).end_after == Duration::zero());
  CHECK(stall_of({{"HOROVOD_STALL_CHECK_TIME_SECONDS", "0.5"}}).warn_after == std::chrono::milliseconds(500));
  CHECK(stall_of({{"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "90"}}).end_after == std::chrono::seconds(90));
  CHECK(stall_of({{"HOROVOD_STALL_CHECK_DISABLE", "1"}}).warn_after == Duration::zero());
  CHECK(stall_of({{"HOROVOD_STALL_CHECK_DISABLE", "0"}}).warn_after == std::chrono::seconds(60));
  const auto refused = config_of({{"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "60"}});
  CHECK(refused.error().code() == Code::kInvalid);
  CHECK(refused.error().message().find("must be more than HOROVOD_STALL_CHECK_TIME_SECONDS") != std::string::npos);
  CHECK_FALSE(config_of({{"HOROVOD_STALL_CHECK_TIME_SECONDS", "-1"}}).ok());
  CHECK_FALSE(config_of({{"HOROVOD_STALL_CHECK_DISABLE", "yes"}}).ok());
}

}  // namespace hvd

// launcher/agent and launcher/process: messages, the script that a command names, and processes.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>

#include <doctest/doctest.h>
#include <stdlib.h>

#include "launcher/agent/rank_process.h"
#include "launcher/process/exit_status.h"
#include "launcher/process/output_of.h"
#include "launcher/process/spawn.h"
#include "launcher/survey/node_gpus.h"
#include "launcher/survey/own_cores.h"
#include "launcher/survey/own_gpus.h"
#include "launcher/survey/own_networks.h"
#include "launcher/survey/script_check.h"
#include "launcher/wire/messages.h"
#include "tests/support/jumping_clock.h"

using namespace hvd::launch;  // NOLINT(google-build-using-namespace)

namespace {

StartMessage a_start() {
  StartMessage start;
  start.cwd = "/w";
  start.argv = {"python", "a b", ""};
  start.unset = {"RANK"};
  start.env = {{"A", "1\n2"}, {"B", ""}};
  start.last = {{"C", "=x="}};
  start.ranks = {{3, {{"HVD_RANK", "3"}}, {0, 2}}, {4, {}, {}, {"cat"}, true}};
  start.input_window = kInputWindow;
  return start;
}

// Every proper prefix of a message, and every message with a byte too many, is refused.
template <typename Message>
void check_bounds(const std::string& body) {
  REQUIRE(Message::decode(body).ok());
  for (std::size_t size = 0; size < body.size(); ++size) {
    CHECK(!Message::decode(std::string_view(body).substr(0, size)).ok());
  }
  CHECK(!Message::decode(body + "x").ok());
}

int run_to_end(const SpawnOptions& options) {
  const auto pid = spawn(options);
  REQUIRE(pid.ok());
  int status = 0;
  REQUIRE(::waitpid(pid.value(), &status, 0) == pid.value());
  return ExitStatus::from_wait(status).shell_code();
}

}  // namespace

TEST_CASE("cores are the hardware threads that belong together, of those that may be used") {
  std::string root = "/tmp/hvd-cores-XXXXXX";
  REQUIRE(::mkdtemp(root.data()) != nullptr);
  const std::string system = root + "/sys/devices/system/";
  const auto put = [&system](const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(system + path).parent_path());
    std::ofstream(system + path) << text << "\n";
  };
  using Cores = std::vector<hvd::CpuCore>;
  CHECK(own_cores({0, 2}, root) == Cores{{0, {0}}, {0, {2}}});  // a machine that tells nothing
  for (int cpu = 0; cpu < 8; ++cpu) {
    const std::string siblings = std::to_string(cpu % 4) + "," + std::to_string(cpu % 4 + 4);
    put("cpu/cpu" + std::to_string(cpu) + "/topology/" + (cpu % 2 == 0 ? "core_cpus_list" : "thread_siblings_list"),
        siblings);
  }
  put("node/online", "0-2");
  put("node/node0/cpulist", "0,2,4,6");
  put("node/node1/cpulist", "1,3,5,7");
  put("node/node2/cpulist", "");  // memory only
  CHECK(own_cores({0, 1, 2, 3, 4, 5, 6, 7}, root) == Cores{{0, {0, 4}}, {0, {2, 6}}, {1, {1, 5}}, {1, {3, 7}}});
  CHECK(own_cores({1, 4, 6}, root) == Cores{{0, {4}}, {0, {6}}, {1, {1}}});
  put("cpu/cpu1/topology/core_cpus_list", "nonsense");
  CHECK(own_cores({1, 5}, root).size() == 1);  // its older name still tells
  put("cpu/cpu1/topology/thread_siblings_list", "0,4");
  CHECK(own_cores({1, 5}, root).front().cpus == hvd::CpuList{1});  // a core that it is not part of
  std::filesystem::remove_all(root);

  const auto allowed = allowed_cpus();
  REQUIRE(!allowed.empty());
  std::size_t count = 0;
  for (const hvd::CpuCore& core : own_cores(allowed)) {
    count += core.cpus.size();
  }
  CHECK(count == allowed.size());
}

TEST_CASE("a program is bound before it runs, or does not run") {
  SpawnOptions options;
  options.argv = {"/bin/sh", "-c", "exec grep -qE \"^Cpus_allowed_list:[[:space:]]+$WANTED\\$\" /proc/self/status"};
  options.cpus = {allowed_cpus().back()};
  options.environment = {"PATH=/usr/bin:/bin", "WANTED=" + std::to_string(options.cpus.front())};
  CHECK(run_to_end(options) == 0);
  options.cpus = {60000};
  CHECK(spawn(options).error().message().find("cannot bind '/bin/sh' to processors 60000") != std::string::npos);
}

TEST_CASE("a machine's own networks are addresses with a prefix, without loopback") {
  for (const auto& [interface, network] : own_networks()) {
    CHECK(!interface.empty());
    CHECK(network.find('/') != std::string::npos);
    CHECK(!network.starts_with("127."));
    CHECK(!network.starts_with("::1/"));
    CHECK(!network.ends_with("/0"));
  }
}

TEST_CASE("nvidia-smi's list is UUIDs, and MIG instances stand for their GPU") {
  CHECK(gpus_in_list("GPU 0: NVIDIA H200 (UUID: GPU-1-a)\nGPU 1: X (Y) (UUID: GPU-2)\n") ==
        std::vector<std::string>{"GPU-1-a", "GPU-2"});
  CHECK(gpus_in_list("GPU 0: A100 (UUID: GPU-1)\n  MIG 1g.5gb Device 0: (UUID: MIG-7)\n"
                     "  MIG 1g.5gb Device 1: (UUID: MIG-8)\nGPU 1: A100 (UUID: GPU-2)") ==
        std::vector<std::string>{"MIG-7", "MIG-8", "GPU-2"});
  CHECK(gpus_in_list("No devices found.\n").empty());
  CHECK(gpus_in_list(")(UUID: ").empty());
}

TEST_CASE("CUDA_VISIBLE_DEVICES limits the GPUs as CUDA reads it") {
  const std::vector<std::string> gpus = {"GPU-aa", "GPU-ab", "GPU-c"};
  using Words = std::vector<std::string>;
  CHECK(visible_gpus(gpus, "2, 0") == Words{"2", "0"});
  CHECK(visible_gpus(gpus, "GPU-c,1") == Words{"GPU-c", "1"});
  CHECK(visible_gpus(gpus, "GPU-ab") == Words{"GPU-ab"});
  CHECK(visible_gpus(gpus, "0,GPU-a,2") == Words{"0"});  // ambiguous: the list ends there
  CHECK(visible_gpus(gpus, "0,7,2") == Words{"0"});
  CHECK(visible_gpus(gpus, "0,-1,2") == Words{"0"});
  CHECK(visible_gpus(gpus, "1,1") == Words{"1"});
  CHECK(visible_gpus(gpus, "").empty());
}

TEST_CASE("GPUs are found in the driver's files, those of this container, in the order of their numbers") {
  std::string root = "/tmp/hvd-test-XXXXXX";
  REQUIRE(::mkdtemp(root.data()) != nullptr);
  const auto put = [&root](const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root + path).parent_path());
    std::ofstream(root + path) << text;
  };
  const auto card = [&put](const std::string& bus, const std::string& uuid, const std::string& minor) {
    put("/proc/driver/nvidia/gpus/" + bus + "/information",
        "Model: \t NVIDIA H200\nGPU UUID: \t " + uuid + "\nDevice Minor: \t " + minor + "\n");
  };
  const auto late = hvd::Deadline::after(std::chrono::seconds(300));
  const auto near = [&root] { return numa_nodes_of_gpus({"GPU-second", "0", "GPU-", "MIG-5", "7"}, root); };
  CHECK(near() == std::vector<std::int32_t>(5, -1));
  card("0000:9a:00.0", "GPU-second", "0");
  card("0000:1b:00.0", "GPU-first", "1");
  card("0000:1c:00.0", "GPU-other", "2");  // of another container: no device
  put("/dev/nvidia0", "");
  put("/dev/nvidia1", "");
  CHECK(own_gpus({}, late, root) == std::vector<std::string>{"GPU-first", "GPU-second"});
  put("/sys/bus/pci/devices/0000:9a:00.0/numa_node", "1\n");
  put("/sys/bus/pci/devices/0000:1b:00.0/numa_node", "-1\n");
  put("/sys/bus/pci/devices/0000:1c:00.0/numa_node", "3\n");
  CHECK(near() == std::vector<std::int32_t>{1, -1, -1, -1, -1});
  CHECK(numa_nodes_of_gpus({"1", "2"}, root) == std::vector<std::int32_t>{1, -1});  // only those with a device count
  put("/sys/bus/pci/devices/0000:1b:00.0/numa_node", "?\n");
  CHECK(near()[1] == -1);
  CHECK(own_gpus({"CUDA_VISIBLE_DEVICES=1"}, late, root) == std::vector<std::string>{"1"});
  CHECK(own_gpus({"CUDA_VISIBLE_DEVICES="}, late, root).empty());
  // With MIG instances, and where the files do not say the UUID, nvidia-smi is asked.
  put("/bin/nvidia-smi", "#!/bin/sh\n[ \"$*\" = -L ] && echo '  MIG 1g Device 0: (UUID: MIG-5)'\n");
  std::filesystem::permissions(root + "/bin/nvidia-smi", std::filesystem::perms::owner_all);
  const std::string path = "PATH=" + root + "/bin:/usr/bin:/bin";
  CHECK(own_gpus({path}, late, root).size() == 2);
  put("/proc/driver/nvidia/capabilities/gpu0/mig/gi1/access", "");
  CHECK(own_gpus({path}, late, root) == std::vector<std::string>{"MIG-5"});
  CHECK(own_gpus({"PATH=/none"}, late, root).empty());
  put("/bin/nvidia-smi", "#!/bin/sh\nexec sleep 1000\n");
  CHECK(own_gpus({path}, hvd::Deadline::after(std::chrono::milliseconds(100)), root).empty());
  std::filesystem::remove_all(root);
}

TEST_CASE("AMD's GPUs are found in the kernel's files, within what ROCm's and HIP's variables leave") {
  std::string root = "/tmp/hvd-test-XXXXXX";
  REQUIRE(::mkdtemp(root.data()) != nullptr);
  const auto put = [&root](const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root + path).parent_path());
    std::ofstream(root + path) << text;
  };
  const auto node = [&put](int number, int simds, const std::string& minor, const std::string& id) {
    put("/sys/class/kfd/kfd/topology/nodes/" + std::to_string(number) + "/properties",
        "cpu_cores_count " + std::string(simds == 0 ? "64" : "0") + "\nsimd_count " + std::to_string(simds) +
            "\ndrm_render_minor " + minor + "\nunique_id " + id + "\n");
  };
  const auto found = [&root](const std::vector<std::string>& environment) {
    const NodeGpus gpus = node_gpus(environment, hvd::Deadline::after(std::chrono::seconds(300)), root);
    CHECK(gpus.near.size() == gpus.names.size());
    std::string text = gpus.variable + "=";
    for (std::size_t i = 0; i < gpus.names.size(); ++i) {
      text += (i == 0 ? "" : ",") + gpus.names[i] + "/" + std::to_string(gpus.near[i]);
    }
    return text;
  };
  CHECK(found({"PATH=/none"}) == "=");
  node(0, 0, "0", "0");
  node(1, 304, "128", "4369");
  node(2, 304, "136", "17476");  // of another container: no device
  node(3, 304, "144", "8738");
  put("/dev/dri/renderD128", "");
  put("/dev/dri/renderD144", "");
  put("/sys/class/drm/renderD144/device/numa_node", "1\n");
  CHECK(found({"PATH=/none"}) == "ROCR_VISIBLE_DEVICES=0/-1,1/1");
  CHECK(found({"PATH=/none", "ROCR_VISIBLE_DEVICES=1, 0"}) == "ROCR_VISIBLE_DEVICES=1/1,0/-1");
  CHECK(found({"PATH=/none", "ROCR_VISIBLE_DEVICES=GPU-0000000000002222"}) ==
        "ROCR_VISIBLE_DEVICES=GPU-0000000000002222/1");
  CHECK(found({"PATH=/none", "ROCR_VISIBLE_DEVICES=1,7,0"}) == "ROCR_VISIBLE_DEVICES=1/1");
  CHECK(found({"PATH=/none", "HIP_VISIBLE_DEVICES=1"}) == "HIP_VISIBLE_DEVICES=1/1");
  CHECK(found({"PATH=/none", "ROCR_VISIBLE_DEVICES=1", "HIP_VISIBLE_DEVICES=0"}) == "HIP_VISIBLE_DEVICES=0/1");
  CHECK(found({"PATH=/none", "ROCR_VISIBLE_DEVICES="}) == "=");
  CHECK(found({"PATH=/none", "ROCR_VISIBLE_DEVICES=", "ZE_AFFINITY_MASK=0.0,0.1"}) == "ZE_AFFINITY_MASK=0.0/-1,0.1/-1");
  std::filesystem::remove_all(root);
}

TEST_CASE("messages survive the way, and are refused when cut or too long") {
  const StartMessage start = StartMessage::decode(a_start().encode()).value();
  CHECK(start.argv == a_start().argv);
  CHECK(start.env == a_start().env);
  CHECK(start.last == a_start().last);
  CHECK(start.ranks[0].env == a_start().ranks[0].env);
  CHECK(start.ranks[0].cpus == hvd::CpuList{0, 2});
  StartMessage wrong = a_start();
  wrong.ranks[1].cpus = {-1};
  CHECK(!StartMessage::decode(wrong.encode()).ok());
  const ReadyMessage ready{"0.1", "n", 1, {{1, {0, 4}}}, 3, "/s", "/r", {}, "CUDA_VISIBLE_DEVICES", {"GPU-1"}, {1}, {}};
  CHECK(ReadyMessage::decode(ready.encode()).value().cores == ready.cores);
  CHECK(ReadyMessage::decode(ready.encode()).value().near == ready.near);
  check_bounds<StartMessage>(a_start().encode());
  check_bounds<WelcomeMessage>(WelcomeMessage{"j", 2, {}, "t", 5, 6, 7}.encode());
  check_bounds<ReadyMessage>(ReadyMessage{"0.1",
                                          "n",
                                          1,
                                          {{1, {0, 4}}},
                                          3,
                                          "/s",
                                          "/r",
                                          {{"eth0", "10.0.0.1/8"}},
                                          "CUDA_VISIBLE_DEVICES",
                                          {"GPU-1"},
                                          {1},
                                          {2, 4, 0, 2}}
                                 .encode());
  check_bounds<ResumeMessage>(ResumeMessage{"/r", "t", 7}.encode());
  check_bounds<RelayStartMessage>(RelayStartMessage{7, {"ssh", ""}}.encode());
  check_bounds<RelayOverMessage>(RelayOverMessage{7, ExitStatus{ExitStatus::Kind::kSignalled, 9}, "killed"}.encode());
  check_bounds<RelayOverMessage>(RelayOverMessage{7, std::nullopt, "no such program"}.encode());
  check_bounds<RestartMessage>(RestartMessage{1, "rank 1 was killed", a_start()}.encode());
  check_bounds<RestartMessage>(RestartMessage{1, "rank 1 was killed", std::nullopt}.encode());
  check_bounds<StopMessage>(StopMessage{15, 100, {2, 3}}.encode());
  check_bounds<FailingMessage>(FailingMessage{1, {hvd::FailureNews::Kind::kOver, 2, 1, "it was lost"}}.encode());
  check_bounds<ExitedMessage>(ExitedMessage{1, {ExitStatus::Kind::kSignalled, 9}, {"killed", "in /core"}}.encode());
  check_bounds<ExchangeMessage>(ExchangeMessage{1, "k", "v", 2}.encode());
  check_bounds<ExchangedMessage>(ExchangedMessage{"k", {"a", ""}}.encode());
  check_bounds<StartFailedMessage>(StartFailedMessage{1, hvd::Error(hvd::Code::kNotFound, "no")}.encode());
}

TEST_CASE("random bytes never become a message with more items than bytes") {
  std::mt19937 random(5);
  for (int i = 0; i < 20000; ++i) {
    std::string body;
    for (std::size_t n = random() % 64; n > 0; --n) {
      body += static_cast<char>(random() % 3 == 0 ? random() : 0);
    }
    if (const auto start = StartMessage::decode(body); start.ok()) {
      CHECK(start.value().argv.size() <= body.size());
    }
    CHECK((ExchangedMessage::decode(body).ok() || true));
    if (const auto output = OutputMessage::decode(body); output.ok()) {
      CHECK(output.value().bytes.size() + 5 == body.size());
    }
  }
}

TEST_CASE("the script of a Python command line is found, and nothing is taken for one") {
  CHECK(python_script_of({"python", "train.py", "-c"}) == "train.py");
  CHECK(python_script_of({"/v/bin/python3.11", "-u", "-X", "dev", "t.py"}) == "t.py");
  CHECK(python_script_of({"python", "-W", "ignore", "t.py"}) == "t.py");
  CHECK(python_script_of({"python", "-m", "pkg"}).empty());
  CHECK(python_script_of({"python", "-um", "pkg"}).empty());
  CHECK(python_script_of({"python", "-c", "pass"}).empty());
  CHECK(python_script_of({"python", "-"}).empty());
  CHECK(python_script_of({"python"}).empty());
  CHECK(python_script_of({"bash", "x.sh"}).empty());
}

TEST_CASE("an exit status is decoded, whether a core was dumped or not") {
  CHECK(ExitStatus::from_wait(3 << 8).shell_code() == 3);
  CHECK(ExitStatus::from_wait(SIGSEGV).shell_code() == 139);
  CHECK(ExitStatus::from_wait(SIGSEGV | 0x80).shell_code() == 139);
  CHECK(ExitStatus::from_wait(SIGKILL).text() == "was killed by signal 9 (SIGKILL)");
  CHECK(ExitStatus::from_wait(0).is_success());
}

TEST_CASE("a program is started with its own environment and directory") {
  SpawnOptions options;
  options.argv = {"sh", "-c", "[ \"$A\" = '1 2' ] && [ \"$(pwd)\" = / ] && exit 7"};
  options.environment = {"PATH=/usr/bin:/bin", "A=1 2"};
  options.cwd = "/";
  CHECK(run_to_end(options) == 7);
}

TEST_CASE("a child ignores no signal that its parent ignored") {
  ::signal(SIGPIPE, SIG_IGN);
  SpawnOptions options;
  options.argv = {"sh", "-c", "kill -PIPE $$; exit 1"};
  options.environment = {"PATH=/usr/bin:/bin"};
  CHECK(run_to_end(options) == 128 + SIGPIPE);
}

TEST_CASE("a program that closes its output and lives on is waited for only as long as is said") {
  const auto done = output_of({"sh", "-c", "echo hello; exec >&- 2>&-; exec sleep 1000"}, {"PATH=/usr/bin:/bin"},
                              hvd::Deadline::after(std::chrono::seconds(1)));
  REQUIRE(!done.ok());
  CHECK(done.error().code() == hvd::Code::kTimeout);
  const auto endless = output_of({"yes"}, {"PATH=/usr/bin:/bin"}, hvd::Deadline::after(std::chrono::minutes(5)));
  CHECK(endless.error().message() == "'yes' has printed more than 1 MiB and was stopped");
  CHECK(output_of({"echo", "hello"}, {"PATH=/usr/bin:/bin"}, hvd::Deadline::after(std::chrono::minutes(5))).value() ==
        "hello\n");
}

TEST_CASE("all that a rank has written is read when it has ended, also from a pipe that it has enlarged") {
  constexpr std::size_t kWritten = 1U << 20U;
  hvd::test::JumpingClock clock;
  const auto loop = hvd::EventLoop::create(clock).value();
  std::size_t allowance = 0;
  std::size_t read = 0;
  bool is_over = false;
  RankProcess::Sink sink;
  sink.allowance = [&allowance] { return allowance; };
  sink.on_output = [&read](int, StreamId, std::string_view bytes) { read += bytes.size(); };
  sink.on_output_end = [&is_over](int, StreamId stream) { is_over = is_over || stream == StreamId::kStdout; };
  SpawnOptions options;
  // A process that it leaves behind holds the pipe open. 1031: F_SETPIPE_SZ.
  options.argv = {"python3", "-S", "-c",
                  "import fcntl, os, subprocess\nfcntl.fcntl(1, 1031, 1 << 20)\n"
                  "subprocess.Popen(['sleep', '1000'], stderr=subprocess.DEVNULL)\nos.write(1, b'x' * (1 << 20))"};
  options.environment = {"PATH=/usr/local/bin:/usr/bin:/bin"};
  const auto rank = RankProcess::start(*loop, 0, std::move(options), std::move(sink)).value();
  const pid_t group = rank->pid();
  siginfo_t ended{};
  REQUIRE(::waitid(P_PID, static_cast<id_t>(group), &ended, WEXITED | WNOWAIT) == 0);
  REQUIRE(loop->turn(hvd::Deadline::after(hvd::Duration::zero())).ok());  // it finds that nothing is allowed
  int status = 0;
  REQUIRE(::waitpid(group, &status, 0) == group);
  REQUIRE(ExitStatus::from_wait(status).is_success());
  rank->mark_exited(ExitStatus::from_wait(status));
  CHECK(read == 0);
  allowance = 2 * kWritten;
  clock.jumped += std::chrono::seconds(10);  // whoever holds the pipe is not waited for any longer
  rank->resume();
  while (!is_over) {
    REQUIRE(loop->turn(hvd::Deadline::after(std::chrono::minutes(5))).ok());
  }
  ::kill(-group, SIGKILL);
  CHECK(read == kWritten);
}

TEST_CASE("what cannot be started is told with its path and reason") {
  SpawnOptions options;
  options.environment = {"PATH=/usr/bin:/bin"};
  options.argv = {"no-such-program"};
  CHECK(spawn(options).error().code() == hvd::Code::kNotFound);
  options.argv = {"/etc/passwd"};
  CHECK(spawn(options).error().message().find("not an executable") != std::string::npos);
  options.argv = {"true"};
  options.cwd = "/no/such/directory";
  CHECK(spawn(options).error().message().find("cannot enter the working directory '/no/such/directory'") !=
        std::string::npos);
}

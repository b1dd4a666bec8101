// launcher/survey: what an agent finds out about its node's cores, networks, GPUs, and about a command.
#include <sys/wait.h>

#include <filesystem>
#include <fstream>

#include <doctest/doctest.h>
#include <stdlib.h>

#include "launcher/process/exit_status.h"
#include "launcher/process/spawn.h"
#include "launcher/survey/node_gpus.h"
#include "launcher/survey/own_cores.h"
#include "launcher/survey/own_gpus.h"
#include "launcher/survey/own_nccl_files.h"
#include "launcher/survey/own_networks.h"
#include "tests/unit/launcher/folder.h"

namespace hvd::launch::survey_test {
namespace {

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

TEST_CASE("what files of NCCL's settings name is known") {
  const test::Folder folder;
  const std::string& root = folder.path;
  test::write_file(root + "/etc/nccl.conf", "# NCCL_DEBUG=INFO\n NCCL_SOCKET_IFNAME = eth0\nnothing\n");
  test::write_file(root + "/.nccl.conf", "NCCL_ALGO=Ring\n");
  test::write_file(root + "/own", "NCCL_PROTO=LL\n");
  using Names = std::vector<std::string>;
  CHECK(own_nccl_names({"HOME=" + root}, root) == Names{"NCCL_SOCKET_IFNAME", "NCCL_ALGO"});
  CHECK(own_nccl_names({"HOME=" + root, "NCCL_CONF_FILE=" + root + "/own"}, root) ==
        Names{"NCCL_SOCKET_IFNAME", "NCCL_PROTO"});
  CHECK(own_nccl_names({}, root + "/absent").empty());
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

}  // namespace hvd::launch::survey_test

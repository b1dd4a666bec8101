// launcher/allocations: the host file that a variable of mpirun names.
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "tests/unit/launcher/allocations/engine_words.h"

namespace hvd::launch::host_file_test {
using namespace hvd::test;  // NOLINT(google-build-using-namespace)

namespace {

// Returns what is said of the hosts, "none", or the message of an error.
std::string said(const Words& environment) {
  const auto found = find_host_file(EngineJob(environment, "w-launcher-0-0").here);
  return !found.ok() ? found.error().message() : found.value() ? described(*found.value(), 0) : "none";
}

}  // namespace

TEST_CASE("each MPI's variable names a host file, in its own form") {
  const EngineJob job(Words{});
  const std::string open_mpi = job.file("open_mpi", "w-0.w.ns.svc slots=2\nw-1.w.ns.svc slots=3\n");
  const std::string hydra = job.file("hydra", "w-0.w.ns.svc:2\nw-1.w.ns.svc:3\n");
  const std::vector<std::pair<std::string, std::string>> named = {{"OMPI_MCA_orte_default_hostfile", open_mpi},
                                                                  {"PRTE_MCA_prte_default_hostfile", open_mpi},
                                                                  {"I_MPI_HYDRA_HOST_FILE", hydra},
                                                                  {"HYDRA_HOST_FILE", hydra}};
  for (const auto& entry : named) {
    const std::string& variable = entry.first;
    const std::string& file = entry.second;
    CAPTURE(variable);
    CHECK(said({"HOME=/", variable + "=" + file}) ==
          "host file " + file + ": 2 nodes (w-0.w.ns.svc to w-1.w.ns.svc), 5 ranks (" + variable + ")");
  }
}

// The file of a launcher's pod that runs ranks too has its name with a domain, as Kubeflow Trainer writes it.
TEST_CASE("this machine gets the name that it knows itself by, unless an SSH server of its own is meant") {
  EngineJob job(Words{}, "w-launcher-0-0");
  const auto names = [&job](const std::string& text) {
    job.here.environment = {"OMPI_MCA_orte_default_hostfile=" + job.file("hosts", text)};
    std::string all;
    const auto found = find_host_file(job.here);
    for (const HostSpec& host : found.value()->hosts) {
      all += host.name + ":" + std::to_string(host.slots) + " ";
    }
    return all;
  };
  CHECK(names("w-launcher-0-0.w slots=2\nw-node-0-0.w slots=2\n") == "w-launcher-0-0:2 w-node-0-0.w:2 ");
  CHECK(names("10.0.0.1 slots=2\n10.0.0.2 slots=2\n") == "w-launcher-0-0:2 10.0.0.2:2 ");
  CHECK(names("w-launcher-0-0.w:2222 slots=2\nada@w-launcher-0-0.w slots=1\n") ==
        "w-launcher-0-0.w:2 w-launcher-0-0.w:1 ");
}

TEST_CASE("the first variable that names a file counts, and an empty one or Open MPI's word for none names none") {
  const EngineJob job(Words{});
  const std::string first = job.file("first", "a\n");
  const std::string second = job.file("second", "b\n");
  CHECK(said({"HYDRA_HOST_FILE=" + second, "OMPI_MCA_orte_default_hostfile=" + first}).find(first) !=
        std::string::npos);
  for (const char* const none : {"", "none"}) {
    const std::string entry = std::string("OMPI_MCA_orte_default_hostfile=") + none;
    CHECK(said({entry, "HYDRA_HOST_FILE=" + second}).find("(HYDRA_HOST_FILE)") != std::string::npos);
    CHECK(said({entry}) == "none");
  }
  CHECK(said({}) == "none");
}

TEST_CASE("a file that cannot be read, or names no host, is an error that names the variable") {
  const EngineJob job(Words{});
  CHECK(said({"HYDRA_HOST_FILE=/no/such"}) ==
        "HYDRA_HOST_FILE names the hosts, but cannot read the host file /no/such: No such file or directory; -H names "
        "others, and --engine none leaves the variable aside");
  for (const char* const wrong : {"", "# none\n", "a slots=x\n"}) {
    CAPTURE(wrong);
    const std::string file = job.file("wrong", wrong);
    CHECK(said({"I_MPI_HYDRA_HOST_FILE=" + file}).find("I_MPI_HYDRA_HOST_FILE names the hosts, but " + file) == 0);
  }
}

}  // namespace hvd::launch::host_file_test

// A host file that a variable of an MPI names. In the launcher pod of an MPIJob of Kubernetes nothing else says which
// pods the job has.
#include <array>

#include "launcher/allocations/node_words.h"
#include "launcher/job/hostfile.h"
#include "launcher/process/spawn.h"

namespace hvd::launch {
namespace {

// Open MPI before 5, Open MPI 5 (PRRTE), Intel MPI and MPICH read these.
constexpr std::array<const char*, 4> kVariables = {"OMPI_MCA_orte_default_hostfile", "PRTE_MCA_prte_default_hostfile",
                                                   "I_MPI_HYDRA_HOST_FILE", "HYDRA_HOST_FILE"};
constexpr const char* kNoFile = "none";  // Open MPI's word for it

FoundAllocation read_named(const Surroundings& here, const std::string& variable, const std::string& file) {
  auto hosts = read_hostfile(file);
  if (!hosts.ok()) {
    return Error(hosts.error().code(), variable + " names the hosts, but " + hosts.error().message() +
                                           "; -H names others, and --engine none leaves the variable aside");
  }
  Allocation found;
  found.engine = "host file " + file;
  found.hosts = std::move(hosts).value();
  // Where the launcher's pod runs ranks too, the file has its name with a domain, and no SSH server runs in it.
  name_own_host(found.hosts, here);
  found.slots_from = variable;
  return std::optional(std::move(found));
}

}  // namespace

FoundAllocation find_host_file(const Surroundings& here) {
  for (const char* const variable : kVariables) {
    const std::string file = value_in(here.environment, variable);
    if (!file.empty() && file != kNoFile) {
      return read_named(here, variable, file);
    }
  }
  return std::optional<Allocation>();
}

}  // namespace hvd::launch

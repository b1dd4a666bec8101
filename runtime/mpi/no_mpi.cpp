// MpiJob for static programs such as hvdrun-agent, which can load no library.
#include "runtime/mpi/mpi_job.h"

namespace hvd {
namespace {

Error none() {
  return Error(Code::kInvalid, "this program is static and can load no MPI; use libhvd.so");
}

}  // namespace

Result<MpiWorld> find_started_world() {
  return MpiWorld{};
}

Result<MpiJob> join_by_mpi(const MpiSettings&, const std::string&, std::unique_ptr<Store>, Deadline) {
  return none();
}

Result<std::shared_ptr<BackendMaker>> move_by_mpi(const MpiSettings&, const RankMap&, Deadline) {
  return none();
}

Result<std::string> find_mpi(const std::string&) {
  return none();
}

bool has_mpi_all_threads() {
  return false;
}

void end_mpi_at_exit() {}

}  // namespace hvd

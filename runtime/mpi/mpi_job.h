// MpiJob: what MPI knows of a job: its ranks, where they are, a store to meet at, and a communicator. no_mpi.cpp stands
// for it in programs that are static and so cannot load an MPI.
//
// Thread: joining only, the same for all calls until the ranks have met.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/backend/backend.h"
#include "runtime/base/clock.h"
#include "runtime/base/result.h"
#include "runtime/core/rank_map.h"
#include "runtime/rendezvous/store.h"

namespace hvd {

class MpiComm;

// What the environment and the program say of MPI.
struct MpiSettings {
  bool has_started_ranks = false;  // mpirun or srun has, and hvdrun has not
  int told_size = 0;               // how many ranks that are, as it says; 0: it does not
  std::string told_by;             // what tells so: a variable, or an MPI that the program has started
  bool prefers_mpich = false;      // its ranks are more likely MPICH's than Open MPI's
  bool has_launcher = false;       // some mpirun or srun is there that this process is a rank of
  bool moves_data = false;         // HOROVOD_CPU_OPERATIONS=mpi
  bool wants_all_threads = true;   // MPI_THREAD_MULTIPLE
  std::string library;             // its file; empty: look for one
  std::optional<int> comm;         // the program's communicator, as Fortran numbers it
  std::vector<int> ranks;          // of the world, which are to be the job; empty: all
};

// What an MPI knows that the program has started itself.
struct MpiWorld {
  int size = 0;      // of MPI_COMM_WORLD; 0: there is no such MPI
  std::string name;  // of the MPI, with its file
};

struct MpiJob {
  RankMap map;               // how the ranks are linked
  RankMap place;             // what the program is told
  std::string node_address;  // for other nodes to reach this one at; may be empty on a single one
  std::unique_ptr<Store> store;
  std::shared_ptr<BackendMaker> backends;  // null: MPI is for meeting only
};

// Loads and starts nothing: the world of an MPI that is there and runs.
Result<MpiWorld> find_started_world();
// Starts MPI where the program has not, and finds the job's ranks by it. `chosen_address`: instead of one that is found
// here; may be empty. `news`: see MpiStore.
Result<MpiJob> join_by_mpi(const MpiSettings& settings, const std::string& chosen_address, std::unique_ptr<Store> news,
                           Deadline deadline);
// For ranks that hvdrun has started through mpirun, and that know all else: the maker that moves their data by MPI.
Result<std::shared_ptr<BackendMaker>> move_by_mpi(const MpiSettings& settings, const RankMap& map, Deadline deadline);

// What can be told of MPI without starting it: its version, or why there is none. `library`: as above.
Result<std::string> find_mpi(const std::string& library);
// The level that MPI was started with is MPI_THREAD_MULTIPLE.
bool has_mpi_all_threads();
// MPI_Finalize, if MPI was started here. Once, when the process exits.
void end_mpi_at_exit();

}  // namespace hvd

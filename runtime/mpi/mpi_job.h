// MpiJob is what MPI provides for a job: its ranks, their places, a store for rendezvous, and a communicator.
// no_mpi.cpp replaces it in static programs, which cannot load an MPI.
//
// Thread: joining only, the same for all calls until the ranks have connected.
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

// MpiSettings is what the environment and the program say about MPI.
struct MpiSettings {
  bool has_started_ranks = false;  // mpirun or srun started the ranks, and hvdrun did not
  int told_size = 0;               // the number of ranks according to told_by; 0: not known
  std::string told_by;             // the source of that: a variable, or an MPI that the program has initialised
  bool prefers_mpich = false;      // its ranks are more likely MPICH's than Open MPI's
  bool has_launcher = false;       // this process is a rank of some mpirun or srun
  bool moves_data = false;         // HOROVOD_CPU_OPERATIONS=mpi
  bool wants_all_threads = true;   // MPI_THREAD_MULTIPLE
  std::string library;             // the file of the library; empty: search for one
  std::optional<int> comm;         // the program's communicator, as Fortran numbers it
  std::vector<int> ranks;          // ranks of the world that form the job; empty: all
};

// MpiWorld describes an MPI that the program has initialised itself.
struct MpiWorld {
  int size = 0;      // of MPI_COMM_WORLD; 0: there is no such MPI
  std::string name;  // of the MPI, with its file
};

struct MpiJob {
  RankMap map;               // the placement by which the ranks are linked
  RankMap place;             // the placement that the program sees
  std::string node_address;  // the address at which other nodes reach this one; may be empty if there is only one
  std::unique_ptr<Store> store;
  std::shared_ptr<BackendMaker> backends;  // null: MPI serves only for the rendezvous
};

// Finds the world of an MPI that is loaded and initialised already; it loads and starts nothing.
Result<MpiWorld> find_started_world();
// Initialises MPI if the program has not, and finds the job's ranks through it. `chosen_address` replaces the address
// that would be found here; it may be empty. `news`: see MpiStore.
Result<MpiJob> join_by_mpi(const MpiSettings& settings, const std::string& chosen_address, std::unique_ptr<Store> news,
                           Deadline deadline);
// Makes the maker that moves data by MPI, for ranks that hvdrun has started through mpirun and that know everything
// else.
Result<std::shared_ptr<BackendMaker>> move_by_mpi(const MpiSettings& settings, const RankMap& map, Deadline deadline);

// Returns MPI's version without starting it, or why there is none. `library`: as above.
Result<std::string> find_mpi(const std::string& library);
// Whether MPI was initialised with MPI_THREAD_MULTIPLE.
bool has_mpi_all_threads();
// Calls MPI_Finalize, if libhvd initialised MPI. Call it once, when the process exits.
void end_mpi_at_exit();

}  // namespace hvd

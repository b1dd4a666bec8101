#include "runtime/mpi/mpi_job.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "runtime/base/machine.h"
#include "runtime/io/socket.h"
#include "runtime/mpi/mpi_backend.h"
#include "runtime/mpi/mpi_comm.h"
#include "runtime/mpi/mpi_places.h"
#include "runtime/mpi/mpi_process.h"
#include "runtime/mpi/mpi_store.h"
#include "runtime/rendezvous/handshake.h"

namespace hvd {
namespace {

// Returns the name space of this process, such as "mnt:[4026531841]"; empty if the kernel does not report it.
std::string name_space(const char* kind) {
  std::array<char, 64> text{};
  const std::string path = std::string("/proc/self/ns/") + kind;
  const ssize_t length = ::readlink(path.c_str(), text.data(), text.size());
  return length > 0 ? std::string(text.data(), static_cast<std::size_t>(length)) : std::string();
}

Result<MpiPlace> own_place(const std::string& chosen_address) {
  MpiPlace place;
  utsname host{};
  if (::uname(&host) != 0) {
    return Error::from_errno("uname");
  }
  // Host names are not always unique, but the boot id of a machine is.
  place.host = std::string(host.nodename) + " " + boot_id();
  place.sharing = name_space("mnt");
  place.network = name_space("net");
  place.chosen_ip = chosen_address;
  HVD_TRY_ASSIGN(place.ips, interface_ips());
  return place;
}

Result<MpiLibrary*> start_mpi(const MpiSettings& settings, Deadline deadline) {
  MpiProcess& process = MpiProcess::instance();
  HVD_TRY_ASSIGN(
      MpiLibrary* const library,
      process.start(MpiOptions{settings.library, settings.prefers_mpich, settings.wants_all_threads}, deadline));
  if (settings.moves_data && process.threads() < MpiThreads::kSerialized) {
    return Error(Code::kInvalid, std::string("HOROVOD_CPU_OPERATIONS=mpi needs MPI_THREAD_SERIALIZED or more, and ") +
                                     library->version_text() + " was started with " + name_of(process.threads()) +
                                     "; start it with more (mpi4py.rc.thread_level = \"multiple\"), or leave it to "
                                     "hvd.init()");
  }
  return library;
}

std::string name_of(const MpiLibrary& library) {
  return library.version_text() + " (" + library.path() + ")";
}

// An MPI of another kind than the launcher's makes each rank a job of its own. Without this check each rank would run
// alone without an error.
Result<void> check_world(const MpiSettings& settings, const MpiLibrary& library) {
  if (!settings.has_started_ranks || settings.comm) {
    return {};
  }
  HVD_TRY_ASSIGN(const int size, library.size(library.world()));
  if (size > 1 && size >= settings.told_size) {
    return {};
  }
  const std::string told = settings.told_size == 0 ? settings.told_by + " is set, as for several ranks"
                                                   : settings.told_by + " is " + std::to_string(settings.told_size);
  return Error(Code::kInvalid,
               told + ", but " + name_of(library) + " knows of " + std::to_string(size) +
                   (size == 1 ? " rank" : " ranks") +
                   ": it is not the MPI of the mpirun or srun that has started this process; name that "
                   "one's libmpi in HVD_MPI_LIBRARY, or start the ranks by this one's mpirun" +
                   (settings.told_size == 0 ? "; for a job of one rank, unset " + settings.told_by : ""));
}

Result<MpiComm> comm_of(const MpiSettings& settings, MpiLibrary& library, Deadline deadline) {
  if (!settings.ranks.empty()) {
    return MpiComm::among(library, settings.ranks, deadline);
  }
  MpiHandle original = library.world();
  if (settings.comm) {
    HVD_TRY_ASSIGN(original, library.from_fortran(*settings.comm));
  }
  return MpiComm::copy_of(library, original, deadline);
}

// Returns the first rank's secret on all ranks.
Result<JobSecret> agree_on_secret(MpiComm& comm, Interrupt& interrupt) {
  std::string own;
  if (comm.rank() == 0) {
    HVD_TRY_ASSIGN(const Nonce nonce, make_nonce());
    own.assign(nonce.begin(), nonce.end());
  }
  HVD_TRY_ASSIGN(const std::vector<std::string> told, gather_texts(comm, own, interrupt));
  JobSecret secret{};
  if (told.front().size() != secret.size()) {
    return Error(Code::kProtocol, "rank 0 has sent no secret over MPI");
  }
  std::memcpy(secret.data(), told.front().data(), secret.size());
  return secret;
}

}  // namespace

Result<MpiWorld> find_started_world() {
  HVD_TRY_ASSIGN(const std::unique_ptr<MpiLibrary> library, MpiLibrary::find_started());
  if (library == nullptr) {
    return MpiWorld{};
  }
  HVD_TRY_ASSIGN(const int size, library->size(library->world()));
  return MpiWorld{size, name_of(*library)};
}

Result<MpiJob> join_by_mpi(const MpiSettings& settings, const std::string& chosen_address, std::unique_ptr<Store> news,
                           Deadline deadline) {
  HVD_TRY_ASSIGN(MpiLibrary* const library, start_mpi(settings, deadline));
  HVD_TRY(check_world(settings, *library));
  HVD_TRY_ASSIGN(MpiComm own, comm_of(settings, *library, deadline));
  const auto comm = std::make_shared<MpiComm>(std::move(own));
  DeadlineInterrupt interrupt(deadline);
  HVD_TRY_ASSIGN(const MpiPlace here, own_place(chosen_address));
  HVD_TRY_ASSIGN(const std::vector<std::string> told, gather_texts(*comm, encode(here), interrupt));
  std::vector<MpiPlace> places;
  for (const std::string& body : told) {
    HVD_TRY_ASSIGN(MpiPlace place, decode_mpi_place(body, static_cast<int>(places.size())));
    places.push_back(std::move(place));
  }
  MpiJob job;
  job.map = map_by_runs(places, comm->rank());
  job.place = map_by_hosts(places, comm->rank());
  HVD_TRY_ASSIGN(job.node_address, address_among(places, comm->rank()));
  HVD_TRY_ASSIGN(const JobSecret secret, agree_on_secret(*comm, interrupt));
  std::vector<int> launcher_ranks = settings.ranks;
  if (settings.comm) {
    HVD_TRY_ASSIGN(const int world_size, library->size(library->world()));
    launcher_ranks.assign(comm->size() == world_size ? 0 : places.size(), -1);
  }
  job.store = std::make_unique<MpiStore>(comm, secret, std::move(news), std::move(launcher_ranks));
  if (settings.moves_data) {
    job.backends = std::make_shared<MpiBackendMaker>(comm);
  }
  return job;
}

Result<std::shared_ptr<BackendMaker>> move_by_mpi(const MpiSettings& settings, const RankMap& map, Deadline deadline) {
  HVD_TRY_ASSIGN(MpiLibrary* const library, start_mpi(settings, deadline));
  HVD_TRY_ASSIGN(MpiComm own, MpiComm::copy_of(*library, library->world(), deadline));
  if (own.rank() != map.rank || own.size() != map.size) {
    return Error(Code::kInvalid, "HOROVOD_CPU_OPERATIONS=mpi: " + library->version_text() +
                                     " has this process as rank " + std::to_string(own.rank()) + " of " +
                                     std::to_string(own.size()) + ", but it is rank " + std::to_string(map.rank) +
                                     " of " + std::to_string(map.size) +
                                     "; start the ranks with hvdrun --launcher mpi, and with the mpirun of this MPI");
  }
  return std::shared_ptr<BackendMaker>(new MpiBackendMaker(std::make_shared<MpiComm>(std::move(own))));
}

Result<std::string> find_mpi(const std::string& library) {
  HVD_TRY_ASSIGN(const std::unique_ptr<MpiLibrary> found, MpiLibrary::load(library, false, DynLib::Scope::kOwn));
  return found->version_text();
}

bool has_mpi_all_threads() {
  return MpiProcess::instance().threads() == MpiThreads::kMultiple;
}

void end_mpi_at_exit() {
  MpiProcess::instance().end_at_exit();
}

}  // namespace hvd

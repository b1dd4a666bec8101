// The making of a context: it reads what the caller and the environment say, lets the ranks find each other, and starts
// the engine.
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/abi/context.h"
#include "runtime/abi/lost_place.h"
#include "runtime/abi/op_checks.h"
#include "runtime/abi/tuning_source.h"
#include "runtime/base/contract.h"
#include "runtime/base/text.h"
#include "runtime/rendezvous/crypto.h"
#include "runtime/rendezvous/hmac.h"
#include "runtime/rendezvous/store_client.h"

namespace hvd {

namespace {

// RankLog begins each line with the rank: "hvd rank 3: warning: ..."
class RankLog final : public Log {
 public:
  RankLog(LogLevel lowest, int rank) : who_("hvd rank " + std::to_string(rank)), log_(lowest, who_) {}
  void write(LogLevel level, std::string_view message) override { log_.write(level, message); }

 private:
  const std::string who_;
  StderrLog log_;
};

// Reads the caller's options, which take precedence over the environment. Later versions of the struct are longer.
Result<void> read_options(const hvd_options* options, Config& config) {
  if (options == nullptr) {
    return {};
  }
  HVD_TRY(check_struct("hvd_options", options->size, options->version, {sizeof(hvd_options)}));
  constexpr double kMaxTimeoutSeconds = 86'400.0;
  if (options->timeout_s > 0) {
    const double seconds = options->timeout_s < kMaxTimeoutSeconds ? options->timeout_s : kMaxTimeoutSeconds;
    config.start_timeout = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
    config.has_own_timeout = true;
  }
  if (options->rank_count < 0 || (options->rank_count > 0 && options->ranks == nullptr)) {
    return Error(Code::kInvalid, "hvd_options: ranks is NULL or their number negative");
  }
  if (options->rank_count > 0 && options->has_mpi_comm != 0) {
    return Error(Code::kInvalid, "hvd_options: both a communicator and ranks");
  }
  config.mpi.ranks.assign(options->ranks, options->ranks + options->rank_count);
  if (options->has_mpi_comm != 0) {
    config.mpi.comm = options->mpi_comm;
  }
  return {};
}

bool names_all(const std::vector<int>& ranks, int size) {
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] != static_cast<int>(i)) {
      return false;
    }
  }
  return ranks.size() == static_cast<std::size_t>(size);
}

// If nothing else shows that there are other ranks, asks an MPI that the program has initialised. Its launcher may set
// no variable that is known here.
Result<void> ask_started_mpi(Config& config) {
  if (config.mpi.has_started_ranks || config.mpi.comm || config.map.size > 1) {
    return {};
  }
  HVD_TRY_ASSIGN(const MpiWorld world, find_started_world());
  if (world.size > 1) {
    config.mpi.has_started_ranks = true;
    config.mpi.has_launcher = true;
    config.mpi.told_size = world.size;
    config.mpi.told_by = "the world of " + world.name;
    config.agent_socket.clear();  // it belongs to a job of hvdrun with one rank, which has started these ranks
  }
  return {};
}

// An elastic job's generation has put this process elsewhere than it was started.
void take_place(const GenerationPlace& place, RankMap& map) {
  map.rank = place.rank;
  map.size = place.size;
  map.local_rank = place.local_rank;
  map.local_size = place.local_size;
  map.cross_rank = place.cross_rank;
  map.cross_size = place.cross_size;
  map.node_index = place.node_index;
  map.node_count = place.node_count;
}

// Makes the store for the rendezvous: through hvdrun's agent, or by MPI if mpirun has started the ranks or the program
// names a communicator.
Result<std::unique_ptr<Store>> meet(Config& config, Deadline deadline) {
  HVD_TRY(ask_started_mpi(config));
  std::unique_ptr<Store> store;
  if (!config.agent_socket.empty()) {
    HVD_TRY_ASSIGN(auto client,
                   StoreClient::connect(config.agent_socket, config.agent_token, config.map.rank, deadline));
    if (client->place()) {
      take_place(*client->place(), config.map);
      config.slot = client->place()->slot;
      config.engine.timeline.keeps_earlier = true;
    }
    store = std::move(client);
  }
  if (!config.mpi.has_started_ranks && names_all(config.mpi.ranks, config.map.size)) {
    config.mpi.ranks.clear();
  }
  const bool is_of_mpi = config.mpi.has_started_ranks || config.mpi.comm || !config.mpi.ranks.empty();
  const bool needs_mpi = !config.mpi.ranks.empty() || (config.map.size > 1 && is_of_mpi);
  if (needs_mpi && !config.mpi.has_launcher) {
    return Error(Code::kInvalid,
                 "a job of some ranks needs ranks of MPI, which these are not; start them with hvdrun --launcher mpi, "
                 "or with mpirun");
  }
  // In many profiles the setting is left over from when Horovod was built.
  if (config.mpi.moves_data && !config.mpi.has_launcher) {
    config.mpi.moves_data = false;
    config.no_mpi =
        "HOROVOD_CPU_OPERATIONS=mpi has no effect, and data goes over libhvd's own links: these ranks were not started "
        "by MPI, as hvdrun --launcher mpi and mpirun do";
  }
  if (is_of_mpi) {
    auto joined = join_by_mpi(config.mpi, config.engine.mesh.node_address, std::move(store), deadline);
    if (!joined.ok()) {
      return joined.error().with_context("joining by MPI");
    }
    MpiJob job = std::move(joined).value();
    config.map = std::move(job.map);
    config.place = std::move(job.place);
    config.engine.mesh.node_address = std::move(job.node_address);
    config.engine.backends = std::move(job.backends);
    return std::move(job.store);
  }
  if (config.mpi.moves_data && config.map.size > 1) {
    HVD_TRY_ASSIGN(config.engine.backends, move_by_mpi(config.mpi, config.map, deadline));
  }
  return store;
}

// Derives the key of hvd_mac, which is the same on all ranks of the job and secret to others. A rank that is alone
// needs only a secret one.
Result<std::string> object_key_of(const Store* store) {
  JobSecret secret{};
  if (store == nullptr) {
    HVD_TRY(fill_random(secret));
  } else {
    secret = store->secret();
  }
  return hkdf_expand(secret, "hvd object key", kMacBytes);
}

std::string not_met_text(const Config& config) {
  return "the ranks have not met within " + duration_text(config.start_timeout) +
         (config.has_own_timeout ? "" : std::string(" (") + contract::kStartTimeout + ")");
}

}  // namespace

Result<std::unique_ptr<hvd_ctx>> make_context(const hvd_options* options) {
  HVD_TRY_ASSIGN(Config config, config_from_process());
  if (config.has_no_launcher) {
    config.alone = words_for_lost_place(::getpid());
  }
  HVD_TRY(read_options(options, config));
  HVD_TRY_ASSIGN(std::unique_ptr<Store> store, meet(config, Deadline::after(config.start_timeout)));
  return make_context(std::move(config), std::move(store));
}

Result<std::unique_ptr<hvd_ctx>> make_context(Config config, std::unique_ptr<Store> store) {
  HVD_TRY(choose_by_place(config));
  auto log = std::make_unique<RankLog>(config.log_level, config.map.rank);
  HVD_TRY(apply_tuning(config, *log));
  if (!config.alone.empty() && config.map.size == 1 && !config.place) {
    log->write(LogLevel::kWarning, config.alone);
  }
  if (!config.no_mpi.empty() && config.map.size > 1 && config.map.rank == 0) {
    log->write(LogLevel::kWarning, config.no_mpi);
  }
  HVD_TRY_ASSIGN(std::string object_key, object_key_of(store.get()));
  auto joined =
      Engine::start(config.map, std::move(store), config.engine, std::move(log), Deadline::after(config.start_timeout));
  if (!joined.ok()) {
    return joined.error().code() == Code::kTimeout ? joined.error().with_context(not_met_text(config)) : joined.error();
  }
  std::unique_ptr<Engine> engine = std::move(joined).value();
  const bool is_by_mpi = config.place.has_value() || config.engine.backends != nullptr;
  std::optional<RankMap> shown = config.place;
  if (config.slot && !shown) {
    shown = engine->map();
    shown->local_rank = *config.slot;
  }
  return std::make_unique<hvd_ctx>(std::move(engine),
                                   hvd_ctx::Joined{std::move(shown), is_by_mpi, std::move(object_key)});
}

}  // namespace hvd

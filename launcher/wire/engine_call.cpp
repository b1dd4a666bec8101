#include "launcher/wire/engine_call.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>

#include <string.h>

#include "launcher/process/spawn.h"
#include "runtime/base/fd.h"
#include "runtime/base/machine.h"
#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

struct SeatVariables {
  std::string_view engine;
  const char* rank;
  const char* size;  // nullptr, as those below: it does not say
  const char* local_rank;
  const char* local_size;
};
constexpr std::array<SeatVariables, 4> kEngines = {{
    {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", nullptr},  // one on each node
    {"jsrun", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_LOCAL_RANK", "JSM_NAMESPACE_LOCAL_SIZE"},
    {"kubernetes", "JOB_COMPLETION_INDEX", nullptr, nullptr, nullptr},  // one in each pod
}};

Result<std::int32_t> number_in(const std::vector<std::string>& environment, const char* name) {
  const std::string text = value_in(environment, name);
  const auto number = parse_number<std::int32_t>(text, 0);
  return number
             ? Result<std::int32_t>(*number)
             : Result<std::int32_t>(Error(Code::kInvalid, std::string(name) + " is '" + text + "', expected a number"));
}

bool take_hex(std::string_view text, MutableBytes bytes) {
  const char* digits = text.data();
  for (std::uint8_t& byte : bytes) {
    if (std::from_chars(digits, digits + 2, byte, 16).ptr != digits + 2) {
      return false;
    }
    digits += 2;
  }
  return true;
}

}  // namespace

bool operator==(const CallKey& a, const CallKey& b) {
  return a.secret == b.secret && a.launcher == b.launcher;
}

std::string own_network_stack() {
  const std::string boot = boot_id();
  struct stat space{};
  if (boot.empty() || ::stat("/proc/self/ns/net", &space) != 0) {
    return "-";
  }
  return boot + "." + std::to_string(space.st_ino);
}

std::vector<std::string> call_words(const std::string& agent_path, const std::string& engine, const CallPlace& place) {
  std::vector<std::string> words = {agent_path, "call", engine, place.stack};
  words.insert(words.end(), place.addresses.begin(), place.addresses.end());
  return words;
}

std::string call_key_text(const CallKey& key) {
  return hex(key.secret) + hex(key.launcher);
}

Result<CallKey> parse_call_key(std::string_view text) {
  CallKey key;
  const std::size_t middle = 2 * key.secret.size();
  if (text.size() != middle + 2 * key.launcher.size() || !take_hex(text.substr(0, middle), key.secret) ||
      !take_hex(text.substr(middle), key.launcher)) {
    return Error(Code::kInvalid, std::string(kCallSecretVariable) + " holds no secret; only hvdrun starts this");
  }
  return key;
}

Result<JobSecret> read_call_secret(const std::string& path) {
  const std::string who = "the key file " + path;
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));  // a pipe must not keep us waiting
  struct stat facts{};
  if (!file.is_open() || ::fstat(file.get(), &facts) != 0) {
    const Error why = Error::from_errno(who);
    return Error(Code::kInvalid, why.message());
  }
  if (!S_ISREG(facts.st_mode)) {
    return Error(Code::kInvalid, who + " is no file");
  }
  if ((facts.st_mode & (S_IWGRP | S_IRWXO)) != 0) {
    return Error(Code::kInvalid,
                 who + " is open to others; its mode is to be 0400, as by defaultMode: 0400 of its volume");
  }
  JobSecret secret{};
  std::array<char, 2 * sizeof secret + 2> text{};  // with a newline, and room to see that there is more
  std::size_t size = 0;
  for (ssize_t got = 1; got > 0 && size < text.size(); size += static_cast<std::size_t>(got)) {
    got = ::read(file.get(), text.data() + size, text.size() - size);
    if (got < 0) {
      return Error(Code::kInvalid, Error::from_errno("cannot read " + who).message());
    }
  }
  std::string_view digits(text.data(), size);
  if (digits.ends_with('\n')) {
    digits.remove_suffix(1);
  }
  const bool is_whole = digits.size() == 2 * secret.size() && take_hex(digits, secret);
  ::explicit_bzero(text.data(), text.size());
  if (!is_whole) {
    return Error(Code::kInvalid,
                 who + " does not hold 64 hex digits and nothing else; openssl rand -hex 32 makes them");
  }
  return secret;
}

bool has_secret_file(const std::string& engine) {
  return engine == "kubernetes";
}

bool has_key_at_input(const std::string& engine) {
  return engine == "slurm";
}

std::string node_name_from(const std::string& engine, const std::vector<std::string>& environment) {
  return engine == "slurm" ? value_in(environment, "SLURMD_NODENAME") : "";
}

void leave_engine(const std::string& engine, std::vector<std::string>& environment) {
  if (engine == "slurm") {
    // What names the job stays, since scripts name their files by it; what says that it has begun anew; and what is of
    // the node, and not of the agent's seat on it.
    static constexpr std::array<std::string_view, 9> kOfJob = {
        "SLURM_JOB",           "SLURM_ARRAY_",    "SLURM_SUBMIT_",      "SLURM_CLUSTER_NAME", "SLURM_CONF",
        "SLURM_RESTART_COUNT", "SLURMD_NODENAME", "SLURM_CPUS_ON_NODE", "SLURM_TOPOLOGY_ADDR"};
    std::erase_if(environment, [](const std::string& entry) {
      return entry.starts_with("SLURM") && std::none_of(kOfJob.begin(), kOfJob.end(), [&entry](std::string_view name) {
               return entry.starts_with(name);
             });
    });
  }
  if (engine == "jsrun") {
    static constexpr std::array<std::string_view, 3> kOfSeat = {"JSM_", "PMIX_", "PMI_"};
    std::erase_if(environment, [](const std::string& entry) {
      return std::any_of(kOfSeat.begin(), kOfSeat.end(),
                         [&entry](std::string_view name) { return entry.starts_with(name); });
    });
  }
}

bool has_order(const std::string& engine) {
  return engine == "spark";
}

Result<CallOrder> parse_order(std::string_view line) {
  const Error refused(
      Code::kInvalid,
      "the order at its standard input is none; only a task of horovod.spark or horovod.ray starts this");
  std::array<std::string_view, 3> words;
  for (std::string_view& word : words) {
    word = take_until(line, ' ');
  }
  CallOrder order;
  const auto key = parse_call_key(words[0]);
  const auto rank = parse_number<std::int32_t>(words[1], 0);
  const auto size = parse_number<std::int32_t>(words[2], 0);
  if (!key.ok() || !line.empty() || !rank || !size || *rank >= *size) {
    return refused;
  }
  order.key = key.value();
  order.seat.rank = *rank;
  order.seat.size = *size;
  return order;
}

Result<Seat> seat_from(const std::string& engine, const std::vector<std::string>& environment) {
  const auto found = std::find_if(kEngines.begin(), kEngines.end(),
                                  [&engine](const SeatVariables& known) { return known.engine == engine; });
  if (found == kEngines.end()) {
    return Error(Code::kInvalid, "no such engine: '" + engine + "'");
  }
  Seat seat;
  HVD_TRY_ASSIGN(seat.rank, number_in(environment, found->rank));
  if (found->size == nullptr) {
    return seat;
  }
  HVD_TRY_ASSIGN(seat.size, number_in(environment, found->size));
  HVD_TRY_ASSIGN(seat.local_rank, number_in(environment, found->local_rank));
  seat.local_size = 1;
  if (found->local_size != nullptr) {
    HVD_TRY_ASSIGN(seat.local_size, number_in(environment, found->local_size));
  }
  return seat;
}

}  // namespace hvd::launch

#include "cli/foreign/mpirun_words.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "runtime/base/text.h"

namespace hvd::cli {
namespace {

enum class Fate {
  kNoEffect,  // it asks for what hvdrun does, or for what only mpirun has
  kRenamed,   // `here` is its name
  kRefused,   // `here` says what to write
};

struct Known {
  std::string_view name;  // with one dash or two before it
  std::size_t values;
  Fate fate;
  const char* here;
};

constexpr const char* kRanksOfHosts =
    "the number of ranks on a host is written behind its name here, as in -H node1:4,node2:4";
constexpr const char* kOrder =
    "ranks fill the hosts in the order of -H or --hostfile here, each as many as it has slots";

constexpr std::array<Known, 31> kKnown = {{
    {"allow-run-as-root", 0, Fate::kNoEffect, ""},
    {"display-allocation", 0, Fate::kNoEffect, ""},
    {"display-map", 0, Fate::kNoEffect, ""},
    {"envall", 0, Fate::kNoEffect, ""},
    {"genvall", 0, Fate::kNoEffect, ""},
    {"gmca", 2, Fate::kNoEffect, ""},
    {"nooversubscribe", 0, Fate::kNoEffect, ""},
    {"oversubscribe", 0, Fate::kNoEffect, ""},
    {"prefix", 1, Fate::kNoEffect, ""},
    {"report-bindings", 0, Fate::kNoEffect, ""},
    {"tag-output", 0, Fate::kNoEffect, ""},
    {"mca", 2, Fate::kNoEffect, ""},
    {"map-by", 1, Fate::kNoEffect, ""},
    {"rank-by", 1, Fate::kNoEffect, ""},
    {"bind-to", 1, Fate::kRenamed, "--bind"},
    {"host", 1, Fate::kRenamed, "--hosts"},
    {"hosts", 1, Fate::kRenamed, "--hosts"},  // with one dash, as MPICH's
    {"machinefile", 1, Fate::kRenamed, "--hostfile"},
    {"env", 2, Fate::kRenamed, "-x"},
    {"genv", 2, Fate::kRenamed, "-x"},
    {"N", 1, Fate::kRefused, kRanksOfHosts},
    {"npernode", 1, Fate::kRefused, kRanksOfHosts},
    {"npersocket", 1, Fate::kRefused, kRanksOfHosts},
    {"pernode", 0, Fate::kRefused, kRanksOfHosts},
    {"perhost", 1, Fate::kRefused, kRanksOfHosts},
    {"ppn", 1, Fate::kRefused, kRanksOfHosts},
    {"bynode", 0, Fate::kRefused, kOrder},
    {"rankfile", 1, Fate::kRefused, kOrder},
    {"rf", 1, Fate::kRefused, kOrder},
    {"wd", 1, Fate::kRefused, "ranks run in the folder in which hvdrun is started; change to it before"},
    {"wdir", 1, Fate::kRefused, "ranks run in the folder in which hvdrun is started; change to it before"},
}};

Error refused(const std::string& words, const char* instead) {
  return Error(Code::kInvalid, words + " is an option of mpirun; " + instead + " (hvdrun help mpi)");
}

// MpirunSetting is a setting of Open MPI's: its value and who says it.
struct MpirunSetting {
  std::string value;
  std::string told_by;
};

// Before Open MPI 5, and from then on (PRRTE), which knows both names.
MpirunSetting setting_of(const std::string& name, std::string given, const std::vector<std::string>& environment) {
  if (!given.empty()) {
    return {std::move(given), "-mca plm_rsh_" + name};
  }
  for (const char* const prefix : {"OMPI_MCA_plm_rsh_", "PRTE_MCA_plm_ssh_", "PRTE_MCA_plm_rsh_"}) {
    const std::string start = prefix + name + "=";
    for (const std::string& entry : environment) {
      if (entry.starts_with(start) && entry.size() > start.size()) {
        return {entry.substr(start.size()), prefix + name};
      }
    }
  }
  return {};
}

// Returns the port in the words that mpirun is to give ssh, as in "-p 2222"; empty: they say something else.
std::string port_in(const std::string& text) {
  const bool is_port = text.starts_with("-p ") && text.find_first_not_of("0123456789", 3) == std::string::npos;
  return is_port ? text.substr(3) : "";
}

}  // namespace

MpirunWay way_of_mpirun(std::string agent, std::string args, const std::vector<std::string>& environment) {
  MpirunSetting command = setting_of("agent", std::move(agent), environment);
  const MpirunSetting words = setting_of("args", std::move(args), environment);
  // Of several, as in "ssh : rsh", mpirun takes the first that is there.
  command.value = trimmed(std::string_view(command.value).substr(0, command.value.find(':')));
  const std::string program = command.value.substr(command.value.rfind('/') + 1);
  // Torque's command forwards no standard input, without which no agent can be spoken with.
  const bool is_usual = program.empty() || program == "ssh" || program == "pbs_tmrsh";
  if (is_usual && words.value.empty()) {
    return {};
  }
  if (is_usual && !port_in(words.value).empty()) {
    return {"", port_in(words.value), words.told_by};
  }
  MpirunWay way;
  way.rsh = is_usual ? "ssh -o BatchMode=yes" : command.value;
  way.rsh += words.value.empty() ? "" : " " + words.value;
  way.is_ssh = is_usual;
  way.told_by = is_usual ? "" : command.told_by;
  if (!words.value.empty()) {
    add_to_list(way.told_by, words.told_by, " and ");
  }
  return way;
}

Result<std::optional<TakenOption>> take_mpirun_option(const std::vector<std::string>& words, std::size_t at) {
  const std::string& word = words[at];
  const std::string name = word.substr(std::min(word.find_first_not_of('-'), word.size()));
  const auto known = std::find_if(kKnown.begin(), kKnown.end(), [&](const Known& k) { return k.name == name; });
  const bool is_pair =
      known != kKnown.end() && std::string_view(known->here) == "-x";  // -genv NAME VALUE, with one dash
  if (known == kKnown.end() || word.size() - name.size() > (is_pair ? 1U : 2U)) {
    return std::optional<TakenOption>();
  }
  // horovodrun has an option that is abbreviated so, without a value.
  if (name == "prefix" && (at + 1 >= words.size() || !words[at + 1].starts_with('/'))) {
    return std::optional<TakenOption>();
  }
  if (at + known->values >= words.size()) {
    return Error(Code::kInvalid, word + ": its value is missing");
  }
  TakenOption taken{known->values + 1};
  const std::string first = known->values > 0 ? words[at + 1] : "";
  if (is_pair && first.find('=') != std::string::npos) {
    return std::optional(TakenOption{2, {known->here, first}});
  }
  const std::string second = known->values > 1 ? words[at + 2] : "";
  if (known->fate == Fate::kRefused) {
    return refused(word, known->here);
  }
  if (name == "map-by" || name == "rank-by") {
    if (first.starts_with("ppr:")) {
      return refused(word + " " + first, kRanksOfHosts);
    }
    if (first != "slot" && first != "core") {
      return refused(word + " " + first, kOrder);
    }
  } else if (name == "bind-to") {
    if (first != "none" && first != "core" && first != "numa") {
      return refused(word + " " + first, "hvdrun has --bind none, core and numa");
    }
    taken.here = {known->here, first};
  } else if (known->fate == Fate::kRenamed) {
    taken.here = {known->here, is_pair ? first + "=" + second : first};
  } else if (first == "plm_rsh_args" && !port_in(second).empty()) {
    taken.here = {"--ssh-port", port_in(second)};
  } else if (first == "plm_rsh_agent" || first == "plm_rsh_args") {
    taken.here = {first == "plm_rsh_agent" ? "--plm-rsh-agent" : "--plm-rsh-args", second};
  } else if (first == "btl_tcp_if_include" && second.find('/') == std::string::npos) {
    taken.here = {"--network-interfaces", second};
  }
  return std::optional(std::move(taken));
}

}  // namespace hvd::cli

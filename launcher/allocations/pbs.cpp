// OpenPBS, PBS Professional and Torque.
//
// Their nodes are reached by SSH. pbs_tmrsh and pbsdsh start a program on a node, but without our standard input, and
// what it prints goes to the job's own files instead of to them: no stream of bytes comes of it.
#include <algorithm>

#include "launcher/allocations/node_words.h"
#include "launcher/job/text_file.h"
#include "launcher/process/spawn.h"
#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

// Torque names the job's GPUs in a file, "n1-gpu0" a line; without this, ranks would use those of other jobs on the
// node.
Result<void> take_gpus(const Surroundings& here, Allocation& found) {
  constexpr std::string_view kMark = "-gpu";
  constexpr int kMostGpus = 1024;
  constexpr std::size_t kMostGpuFile = std::size_t{16} << 20U;
  const std::string file = value_in(here.environment, "PBS_GPUFILE");
  if (file.empty()) {
    return {};
  }
  const auto text = read_text_file(file, "PBS_GPUFILE", kMostGpuFile);
  if (!text.ok()) {
    return half_known(found, text.error().message());
  }
  for (const std::string& line : words_between(text.value(), "\r\n")) {  // none in a job without GPUs
    const std::size_t mark = line.rfind(kMark);
    const std::string number = mark == std::string::npos ? "" : line.substr(mark + kMark.size());
    const int gpu = parse_number<int>(number, 0, kMostGpus).value_or(-1);
    const auto host = std::find_if(found.hosts.begin(), found.hosts.end(), [&](const HostSpec& known) {
      return gpu >= 0 && known.name == std::string_view(line).substr(0, mark);
    });
    if (host == found.hosts.end()) {
      return half_known(found, "PBS_GPUFILE has the line '" + shown_text(line) +
                                   "', expected a host of PBS_NODEFILE and a GPU, as in 'n1-gpu0'");
    }
    host->gpus.push_back(gpu);
  }
  return {};
}

}  // namespace

FoundAllocation find_pbs(const Surroundings& here) {
  Allocation found;
  found.engine = "PBS";
  found.job = value_in(here.environment, "PBS_JOBID");
  if (found.job.empty()) {
    return std::optional<Allocation>();
  }
  found.job = found.job.substr(0, found.job.find('.'));  // "12.server"
  found.slots_from = "PBS_NODEFILE";
  const std::string file = value_in(here.environment, "PBS_NODEFILE");
  if (file.empty()) {
    return half_known(found, "PBS_NODEFILE, which names its nodes, is not set");
  }
  // One line for each process that the job asked for (mpiprocs, ppn), so repeated names are slots.
  HVD_TRY_ASSIGN(const std::vector<std::string> lines, lines_of(found, "PBS_NODEFILE", file));
  HVD_TRY_ASSIGN(found.hosts, hosts_named(found, "PBS_NODEFILE", lines));
  HVD_TRY(check_count(found, here, "PBS_NP", slots_of(found.hosts), "PBS_NODEFILE"));  // Torque sets it
  HVD_TRY(take_gpus(here, found));
  return complete(std::move(found), here, "PBS_NODEFILE");
}

}  // namespace hvd::launch

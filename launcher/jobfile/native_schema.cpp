// This table holds the keys of hvdrun's own, short form of a job file.
#include <array>

#include "launcher/jobfile/job_file.h"

namespace hvd::launch {
namespace {

using Type = Field::Type;

constexpr std::array<const char*, 3> kGpuWords = {"local", "one", "none"};

constexpr std::array kFields = {
    Field{"$schema", Type::kText, "for editors"},
    Field{"name", Type::kText, "of the job: letters, digits, - and _; default: the file's"},
    Field{"nodeCount", Type::kInteger, "hosts that the job needs; default: 1", false, nullptr, 1, 100'000},
    Field{"minNodes", Type::kInteger, "hosts with which it begins, and goes on; default: nodeCount", false, nullptr, 1,
          100'000},
    Field{"maxNodes", Type::kInteger, "hosts that it has at most, as more become free; default: nodeCount", false,
          nullptr, 1, 100'000},
    Field{"processCount", Type::kInteger, "ranks on all of them; default: nodeCount", false, nullptr, 1, 1'000'000},
    Field{"script", Type::kText, "Python script that every rank runs"},
    Field{"command", Type::kTexts, "shell text that every rank runs, in place of a script, or a list of words"},
    Field{"args", Type::kTexts, "arguments of the script, as shell text or as a list of words"},
    Field{"python", Type::kText, "Python interpreter; default: python, or python3 where that is not there"},
    Field{"env", Type::kVariables, "environment variables; without a value: as in hvdrun's own environment"},
    Field{"secrets", Type::kVariables,
          "variables that no output shows; without a value: as in hvdrun's own environment, which keeps it out of the "
          "file"},
    Field{"mounts", Type::kVariables,
          "directories of the nodes by the names that they have below $AZ_BATCHAI_JOB_MOUNT_ROOT"},
    Field{"prepare", Type::kText, "shell text that every node runs once, before any rank starts"},
    Field{"container", Type::kText, "container image that all of it runs in"},
    Field{"gpus", Type::kText, "GPUs that a rank sees, as --gpus", false, nullptr, 0, 0, kGpuWords},
    Field{"output", Type::kText, "directory below which stdout.txt and the other files of each run are kept"},
    Field{"timeout", Type::kTextOrNumber, "longest run: seconds, or as in 1:30:00, 90m, 7d"},
    Field{"hosts", Type::kTexts, "hosts as in -H, a list or a text; -H and --hostfile win"},
    Field{"priority", Type::kText, "among jobs that wait", false, nullptr, 0, 0, kPriorities}};
constexpr Schema kJobFile = {"a job file", kFields};

}  // namespace

const Schema& native_schema() {
  return kJobFile;
}

}  // namespace hvd::launch

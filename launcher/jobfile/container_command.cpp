#include "launcher/jobfile/container_command.h"

#include "launcher/jobfile/mount_command.h"
#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

// Sets hvdrun_engine. `docker` alone is only a client, whose daemon may not be running or may refuse this user.
constexpr const char* kFindEngine =
    "hvdrun_has() { command -v -- \"$1\" >/dev/null 2>&1 && { [ \"$1\" != docker ] || docker version >/dev/null 2>&1; "
    "}; }\n"
    "for hvdrun_engine in podman docker apptainer none; do hvdrun_has \"$hvdrun_engine\" && break; done\n";

// Collects by name the variables that a process needs. The rest of the host's environment would be wrong inside.
constexpr const char* kCollectVariables =
    "hvdrun_vars=()\n"
    "while read -r hvdrun_name; do\n"
    "  case $hvdrun_name in\n"
    "    AZ_*|HVD_*|HOROVOD_*|RANK|WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE|NODE_RANK|GROUP_*|ROLE_*|MASTER_*|\\\n"
    "    "
    "TORCHELASTIC_*|OMPI_*|PMIX_*|TF_CONFIG|OMP_NUM_THREADS|*VISIBLE_DEVICES|ZE_AFFINITY_MASK|NCCL_*|PYTHONUNBUFFERED|"
    "PET_*|\\\n"
    "    PYTHONFAULTHANDLER|JAX_*|GLOO_*|TORCH_NCCL_*";

// Says when the process with this number has begun, as the kernel counts; nothing of one that is gone or a zombie.
constexpr const char* kSince =
    "hvdrun_since() { local at; { read -r at </proc/$1/stat && at=(${at##*\\) }) && [[ ${at[0]} != [ZX] ]] && "
    "echo \"${at[19]}\"; } 2>/dev/null; }\n";

// This script runs in a container of podman or docker, and runs the text that comes by its standard input. The client
// passes signals to this one process only, and a shell that waits for a program is deaf: so the text gets a
// process group of its own, to which they are passed on. The arguments are the process of the client, and when it has
// begun. If the client is killed, nobody ends the container, which therefore ends itself. Where that process is not
// seen here, as with a client of another host, it is not looked for.
constexpr const char* kInContainer =
    "IFS= read -r -d \"\" hvdrun_text\n"
    "hvdrun_client=$1 hvdrun_began=$2 hvdrun_inside=1\n"
    "shift 2\n"
    "set -m\n"
    "(eval \"$hvdrun_text\") &\n"
    "hvdrun_group=$!\n"
    "set +m\n"
    "for hvdrun_name in TERM HUP INT QUIT USR1 USR2; do\n"
    "  trap \"kill -$hvdrun_name -- -$hvdrun_group 2>/dev/null\" $hvdrun_name\n"
    "done\n"
    "hvdrun_watch=\n"
    "if [ -n \"$hvdrun_began\" ] && [ \"$(hvdrun_since \"$hvdrun_client\")\" = \"$hvdrun_began\" ]; then\n"
    "  (while sleep 1 || exit; [ \"$(hvdrun_since \"$hvdrun_client\")\" = \"$hvdrun_began\" ]; do :; done\n"
    "   kill -TERM -- -$hvdrun_group; sleep 5; kill -KILL -- -$hvdrun_group) <&- >/dev/null 2>&1 &\n"
    "  hvdrun_watch=$!\n"
    "fi\n"
    "while wait $hvdrun_group 2>/dev/null; kill -0 $hvdrun_group 2>/dev/null; do :; done\n"
    "{ wait $hvdrun_group; } 2>/dev/null\n"  // a signal may have ended the wait; bash remembers the code
    "hvdrun_code=$?\n"
    "[ -z \"$hvdrun_watch\" ] || kill $hvdrun_watch 2>/dev/null\n"
    "exit $hvdrun_code\n";

// Empties a folder of the run, in a container, of what its user may not remove: what programs have written as a
// container's root or as another user of it. Where something is mounted in the folder it stays as it is.
constexpr const char* kEmptyFolder =
    "hvdrun_empty() {\n"
    "  [ \"$EUID\" != 0 ] && [ -n \"$(find \"$1\" -xdev ! -user \"$EUID\" -print -quit 2>/dev/null)\" ] &&\n"
    "    ! grep -qF -- \" $1\" /proc/self/mountinfo &&\n"
    "    \"$hvdrun_engine\" run --rm --network none --user 0 --entrypoint rm -v \"$1:$1\" \"$hvdrun_image\" -rf -- "
    "\"$1\" >/dev/null 2>&1\n"
    "}\n";

bool has_image(const JobRun& run) {
  return run.job.container.has_value() && run.options.container != ContainerChoice::kNone;
}

std::string find_engine(const JobRun& run) {
  if (run.options.container == ContainerChoice::kAuto) {
    return kFindEngine;
  }
  const std::string word = container_word(run.options.container);
  return "hvdrun_engine=" + word + "\ncommand -v -- " + word + " >/dev/null 2>&1 || { printf 'hvdrun: there is no " +
         word + " on %s\\n' \"$(hostname)\" >&2; exit 242; }\n";
}

std::string collect_variables(const JobRun& run) {
  std::string text = kCollectVariables;
  // The text that runs inside sets the file's variables itself: it may add to what the image has, as to PATH.
  for (const JobVariable& secret : run.job.secrets) {
    text += "|" + secret.name;
  }
  for (const auto& [name, value] : run.options.overridden) {
    text += is_variable_name(name) ? "|" + name : "";
  }
  return text +
         ") hvdrun_vars+=(-e \"$hvdrun_name\");;\n"
         "  esac\n"
         "done < <(compgen -e)\n";
}

std::string name_of(const JobRun& run, ContainerStep step, int number) {
  return "hvdrun-" + run.options.id + (step == ContainerStep::kPreparation ? "-prep" : "-") + std::to_string(number);
}

// Returns the image that jobPreparation leaves, which is used instead of the file's.
std::string prepared_image(const JobRun& run) {
  return "hvdrun-job:" + run.options.id;
}

// True for a name without a registry, as python:3.11 or microsoft/cntk. It means Docker Hub.
bool is_docker_hub_name(const std::string& image) {
  const std::string first = image.substr(0, image.find('/'));
  return first.size() == image.size() || (first.find_first_of(".:") == std::string::npos && first != "localhost");
}

// Sets hvdrun_image, by which the engine knows the file's image. podman alone does not know that a name without a
// registry means Docker Hub. An image that the node already has by the name as it is, is that image.
std::string name_image(const JobRun& run) {
  const std::string& image = run.job.container->image;
  std::string text = "hvdrun_image=" + quoted_word(image) + "\n";
  if (is_docker_hub_name(image)) {
    const std::string full = "docker.io/" + std::string(image.find('/') == std::string::npos ? "library/" : "") + image;
    text +=
        "[ \"$hvdrun_engine\" != podman ] || podman image inspect \"$hvdrun_image\" >/dev/null 2>&1 || "
        "hvdrun_image=" +
        quoted_word(full) + "\n";
  }
  return text;
}

// Returns the volumes, at the paths that they have on the node: the run's folder, the targets of its mount links, and
// the agent's socket. A job that starts in hvdrun's working directory gets that directory too.
std::string volumes(const JobRun& run, const char* flag) {
  const auto volume = [flag](const std::string& path) {
    return std::string(" ") + flag + " " + quoted_word(path + ":" + path);
  };
  std::string text = volume(run.root);
  for (const Mount& mount : run.job.mounts) {
    text += mount.file_system ? "" : volume(mount.directory);  // what is mounted lies in the run's folder
  }
  text += std::string(" ${HVD_AGENT_SOCKET:+") + flag + " \"${HVD_AGENT_SOCKET%/*}:${HVD_AGENT_SOCKET%/*}\"}";
  return text + (run.starts_in_folder() ? std::string(" ") + flag + " \"$PWD:$PWD\"" : "");
}

// Network and process ids are the host's. Ranks meet on the host's network, and a process with number 1 would ignore
// SIGTERM.
std::string oci_run(const JobRun& run, ContainerStep step, int number, const std::string& image) {
  std::string text = "\"$hvdrun_engine\" run -i --name " + name_of(run, step, number) +
                     (step == ContainerStep::kProcess ? " --rm" : "") +
                     " --network host --pid host --entrypoint bash \"${hvdrun_gpus[@]}\" \"${hvdrun_vars[@]}\"";
  const bool is_alone =
      step == ContainerStep::kPreparation ||
      run.layout.nodes[static_cast<std::size_t>(run.layout.processes[static_cast<std::size_t>(number)].node)].slots ==
          1;
  // Processes of one node share memory with each other, so /dev/shm is then the host's, with the host's size.
  if (is_alone && !run.job.container->shm_size.empty()) {
    text += " --shm-size " + quoted_word(run.job.container->shm_size);
  } else {
    text += " --ipc host";
  }
  return text + volumes(run, "-v") + (run.starts_in_folder() ? " -w \"$PWD\"" : "") + " " + image;
}

}  // namespace

const char* container_word(ContainerChoice choice) {
  constexpr const char* kWords[] = {"auto", "podman", "docker", "apptainer", "none"};
  return kWords[static_cast<std::size_t>(choice)];
}

std::string in_container(const JobRun& run, const std::string& text, ContainerStep step, int number, JobTexts& texts) {
  const bool is_preparation = step == ContainerStep::kPreparation;
  if (!has_image(run) && !is_preparation) {
    return text;
  }
  const std::string inner = quoted_word(texts.add(text));
  if (!has_image(run)) {
    return "exec " + bash_command(inner) + "\n";
  }
  const bool is_prepared = !is_preparation && !run.job.preparation.empty();
  const std::string oci_image = is_prepared ? prepared_image(run) : "\"$hvdrun_image\"";
  const std::string overlay = run.job.preparation.empty() ? "" : " --overlay " + quoted_word(run.root + "/overlay");
  std::string script = kSince + find_engine(run) + (is_prepared ? "" : name_image(run)) + collect_variables(run) +
                       "hvdrun_gpus=()\n"
                       "case $hvdrun_engine in\n"
                       "podman|docker)\n"
                       "  if command -v nvidia-smi >/dev/null 2>&1; then\n"
                       "    [ \"$hvdrun_engine\" = docker ] && hvdrun_gpus=(--gpus all) || "
                       "hvdrun_gpus=(--device nvidia.com/gpu=all)\n"
                       "  fi\n";
  // The text comes by standard input, which nothing else uses here, because the image's own user may not be able to
  // read our file.
  const std::string oci = oci_run(run, step, number, oci_image) + " -c " +
                          quoted_word(std::string(kSince) + kInContainer) +
                          " bash \"$$\" \"$(hvdrun_since \"$$\")\" <" + inner + "\n";
  if (is_preparation) {
    const std::string name = name_of(run, step, number);
    script += "  " + oci + "  hvdrun_code=$?\n  [ \"$hvdrun_code\" = 0 ] && { \"$hvdrun_engine\" commit -q " + name +
              " " + prepared_image(run) + " >/dev/null || exit 242; }\n  \"$hvdrun_engine\" rm -f " + name +
              " >/dev/null 2>&1\n  exit \"$hvdrun_code\";;\n";
  } else {
    script += "  exec " + oci + "  ;;\n";
  }
  script += "apptainer)\n  mkdir -p -- " + quoted_word(run.root + "/overlay") +
            "\n  command -v nvidia-smi >/dev/null 2>&1 && hvdrun_gpus=(--nv)\n"
            "  exec apptainer exec \"${hvdrun_gpus[@]}\"" +
            overlay + volumes(run, "--bind") + " --bind " + inner + " " +
            quoted_word("docker://" + run.job.container->image) + " " + bash_command(inner) + ";;\n";
  // Without an engine, the text runs on the host; jobPreparation, or else the set-up, has reported that.
  return script + "*) exec " + bash_command(inner) + ";;\nesac\n";
}

std::string fetch_image(const JobRun& run) {
  if (!has_image(run)) {
    return "";
  }
  const ContainerImage& container = *run.job.container;
  std::string script = find_engine(run);
  if (!container.password.empty()) {
    // Keep the log-in apart from the user's own ones.
    script +=
        "export DOCKER_CONFIG=" + quoted_word(run.root + "/docker") +
        " REGISTRY_AUTH_FILE=" + quoted_word(run.root + "/auth.json") + "\ncase $hvdrun_engine in podman|docker)\n" +
        "  printf %s \"$HVDRUN_REGISTRY_PASSWORD\" | \"$hvdrun_engine\" login --username " +
        quoted_word(container.user) + " --password-stdin " + quoted_word(container.server()) +
        " >/dev/null || exit 242;;\n" +
        "apptainer) echo \"hvdrun: apptainer on $(hostname) does not get the registry's password of the job file; "
        "log in there: apptainer registry login\" >&2;;\nesac\n" +
        "unset HVDRUN_REGISTRY_PASSWORD\n";
  }
  if (has_real_mounts(run)) {
    script +=
        "[ \"$hvdrun_engine\" != docker ] || hvdrun_fail \"docker's containers are started by its daemon, which does "
        "not see what is mounted for the job alone; install podman on $(hostname), or mount it there and give its "
        "directory: --mount NAME=DIR\"\n";
  }
  return script + name_image(run) +
         "case $hvdrun_engine in\npodman|docker) \"$hvdrun_engine\" image inspect \"$hvdrun_image\" >/dev/null 2>&1 || "
         "\"$hvdrun_engine\" pull -q \"$hvdrun_image\" >/dev/null || exit 242;;\nnone) printf '%s\\n' " +
         quoted_word("hvdrun: no podman, docker or apptainer here: the job runs on the host, and not in " +
                     container.image) +
         " >&2;;\nesac\n";
}

std::string remove_containers(const JobRun& run) {
  if (!has_image(run)) {
    return "";
  }
  const std::string filter = "--filter name=hvdrun-" + run.options.id;
  // An engine that was asked for and is missing has left nothing behind, and its absence has been reported.
  const std::string find = run.options.container == ContainerChoice::kAuto
                               ? kFindEngine
                               : std::string("hvdrun_engine=") + container_word(run.options.container) + "\n";
  return find + kEmptyFolder + name_image(run) +
         "case $hvdrun_engine in podman|docker)\n"
         "  hvdrun_left=$(\"$hvdrun_engine\" ps -aq " +
         filter +
         ")\n  [ -z \"$hvdrun_left\" ] || \"$hvdrun_engine\" rm -f $hvdrun_left >/dev/null 2>&1\n"
         "  hvdrun_empty " +
         quoted_word(run.root) +
         (run.shared_at().starts_with(run.root + "/") ? "" : "\n  hvdrun_empty " + quoted_word(run.shared_at())) +
         "\n  \"$hvdrun_engine\" rmi -f " + prepared_image(run) + " >/dev/null 2>&1;;\nesac\n";
}

}  // namespace hvd::launch

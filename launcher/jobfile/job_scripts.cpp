#include <algorithm>

#include "launcher/jobfile/container_command.h"
#include "launcher/jobfile/job_run.h"
#include "launcher/jobfile/mount_command.h"
#include "launcher/jobfile/variable_text.h"
#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

// Where no interpreter is given the service ran python. Many systems of today have python3 alone.
constexpr const char* kPython = "\"$(type -P python || echo python3)\"";

// These functions belong to the node's own set-up, which runs before its jobPreparation.
constexpr const char* kSetUpFunctions =
    "hvdrun_fail() { printf 'hvdrun: %s\\n' \"$1\" >&2; exit 242; }\n"
    "hvdrun_link() {\n"
    "  [ -d \"$1\" ] || hvdrun_fail \"the mount '$3': there is no directory $1 on $(hostname)\"\n"
    "  mkdir -p -- \"${2%/*}\" || exit 242\n"
    "  ln -sn -- \"$1\" \"$2\" 2>/dev/null || [ \"$(readlink -- \"$2\")\" = \"$1\" ] || hvdrun_fail \"cannot link $2 "
    "to $1\"\n"
    "}\n";

// Creates the run's folder. Other users may write to /tmp, so a folder that exists already must be a directory of this
// user. That is right when another node of the run is this machine too.
std::string make_root(const JobRun& run) {
  const std::string root = quoted_word(run.root);
  return "mkdir -m 700 -- " + root + " 2>/dev/null || { [ -O " + root + " ] && [ ! -L " + root +
         " ]; } || hvdrun_fail " + quoted_word("cannot make the folder " + run.root) + "\n";
}

std::string make_folders(const JobRun& run) {
  std::string text = make_root(run);
  text += "mkdir -p -- " + quoted_word(run.mount_root()) + " " + quoted_word(run.cluster_mount_root()) + " " +
          quoted_word(run.temp()) + " || exit 242\n";
  if (has_real_mounts(run)) {
    text += "mkdir -p -m 700 -- " + quoted_word(run.root + "/own") + " || exit 242\n";
  }
  for (const Mount& mount : run.job.mounts) {
    const std::string at = quoted_word(run.mount_point(mount));
    text += mount.file_system
                ? "mkdir -p -- " + at + " || exit 242\n"
                : "hvdrun_link " + quoted_word(mount.directory) + " " + at + " " + quoted_word(mount.name) + "\n";
  }
  return text;
}

std::string make_shared_folder(const JobRun& run) {
  const std::string shared = run.shared_at();
  std::string text = "mkdir -p -- " + quoted_word(shared) + " || exit 242\n";
  if (shared != run.shared()) {
    text += "hvdrun_link " + quoted_word(shared) + " " + quoted_word(run.shared()) + " shared\n";
  }
  return text;
}

// Writes the host file under another name and renames it, since another node may be this machine too.
std::string make_host_file(const JobRun& run, const std::vector<JobNodeFacts>& facts) {
  std::string text = "printf '%s\\n'";
  for (std::size_t node = 0; node < facts.size(); ++node) {
    if (facts[node].address.empty()) {
      continue;
    }
    // A custom toolkit does not say how many processes it starts: assume the user's slots, or one for each GPU.
    const int own = run.job.tool.kind != Toolkit::kCustom ? run.layout.nodes[node].slots
                    : run.layout.slots[node] > 1          ? run.layout.slots[node]
                                                          : std::max(1, facts[node].gpus);
    text += " " + quoted_word(facts[node].address + " slots=" + std::to_string(own));
  }
  const std::string file = quoted_word(run.host_file());
  return text + " >" + file + ".$$ && mv -f -- " + file + ".$$ " + file + " || exit 242\n";
}

std::string make_output_folders(const JobRun& run) {
  std::string text;
  if (!run.output.empty()) {
    text += "mkdir -p -- \"$AZ_BATCHAI_STDOUTERR_DIR\" || exit 242\n";
  }
  for (const OutputDirectory& output : run.job.outputs) {
    text += "mkdir -p -- \"$AZ_BATCHAI_OUTPUT_" + output.id + "\" || exit 242\n";
  }
  return text;
}

// Returns the command of a script. Variables in its arguments are split into words. What is in them is no pattern of
// files, unless a pattern stands beside them.
Result<std::string> script_command(const JobRun& run, const std::string& arguments) {
  const Tool& tool = run.job.tool;
  const auto words = read_arguments(arguments);
  if (!words.ok()) {
    return error_at(run.job.file, tool.at, "the arguments: " + words.error().message());
  }
  std::string program = (tool.interpreter.empty() ? kPython : quote_with_variables(tool.interpreter)) + " " +
                        quote_with_variables(tool.script);
  if (!tool.config_file.empty()) {
    program = (tool.kind == Toolkit::kCntk ? "cntk configFile=" : "caffe train --solver=") +
              quote_with_variables(tool.config_file);
  }
  const std::string& text = words.value().shell_text;
  return (words.value().has_pattern ? "exec -- " : "set -f\nexec -- ") + program + (text.empty() ? "" : " ") + text +
         "\n";
}

// Says so where a script of Horovod's toolkit runs in a container that has no package of ours, which comes from the
// host only where the script runs there. It has another one, whose ranks do not find each other, or none. Our own form
// names no toolkit, and its script may use another one.
std::string check_package(const JobRun& run) {
  const Tool& tool = run.job.tool;
  const bool is_in_image = run.job.container.has_value() && run.options.container != ContainerChoice::kNone;
  if (run.job.is_native || tool.kind != Toolkit::kHorovod || tool.script.empty() || !is_in_image) {
    return "";
  }
  return "[ -z \"${hvdrun_inside:-}${APPTAINER_CONTAINER:-}\" ] || " +
         (tool.interpreter.empty() ? kPython : quote_with_variables(tool.interpreter)) +
         " -c 'import horovod; horovod.hvdrun_version' 2>/dev/null || printf 'hvdrun: %s\\n' " +
         quoted_word(
             "the container has no horovod of hvdrun's, and a script that imports horovod needs it; jobPreparation can "
             "bring it: pip install hvdrun's wheel from a mount (hvdrun help job-files)") +
         " >&2\n";
}

// Returns the user's shell text. SIGTERM goes to all processes of the rank. Without the trap bash would end at once,
// and the rank's exit code would not be that of the program, which is still cleaning up. So bash waits for the program
// and then runs nothing more. A single program replaces bash, so that its signal and core dump are the rank's own.
std::string command_text(const std::string& command) {
  const std::string first = command.substr(0, command.find_first_of(" \t"));
  const bool is_one = command.find_first_of("\n;&|()`") == std::string::npos && !first.empty() &&
                      quoted_word(first) == first && first.front() != '-' && first != "time" && first != "coproc";
  return "trap 'exit $?' TERM HUP\n" +
         (is_one ? "hvdrun_exec=$([ \"$(type -t " + first + ")\" != file ] || echo exec)\n$hvdrun_exec " : "") +
         command + "\n";
}

// Checks the folder with a command of our own, because the text that follows is the user's, and so are its errors.
std::string enter_folder(const JobRun& run) {
  return run.starts_in_folder() ? "" : "cd -- " + quoted_word(run.temp()) + " || exit 242\n";
}

// jobPreparation may have added to ~/.bashrc what the program needs. With PS1 set, bash gets past the line with which
// most such files return in shells that are not interactive. A PATH that the user gives for the job counts more than
// that file's. So does a Python environment that is activated already, unless the file activates another one.
std::string read_rc_file(const JobRun& run) {
  const auto& variables = run.job.variables;
  const bool has_path =
      run.options.overridden.contains("PATH") ||
      std::any_of(variables.begin(), variables.end(), [](const JobVariable& given) { return given.name == "PATH"; });
  return std::string(
             "if [ -r ~/.bashrc ]; then\n"
             "  hvdrun_path=$PATH hvdrun_venv=${VIRTUAL_ENV:-} PS1='$ '\n"
             "  . ~/.bashrc >/dev/null\n") +
         (has_path ? "  PATH=$hvdrun_path\n"
                   : "  if [ -n \"$hvdrun_venv\" ] && [ -x \"$hvdrun_venv/bin/python\" ] &&\n"
                     "     [ \"${VIRTUAL_ENV:-}\" = \"$hvdrun_venv\" ]; then\n"
                     "    PATH=$hvdrun_venv/bin:$PATH\n"
                     "  fi\n") +
         "fi\n";
}

// Returns the text of a process. `before_script` comes when all is there that its script needs.
Result<std::string> text_of(const JobRun& run, int rank, const std::string& before_script) {
  const Tool& tool = run.job.tool;
  const JobProcess& process = run.layout.processes[static_cast<std::size_t>(rank)];
  std::string text = exported_variables(run) + enter_folder(run) + read_rc_file(run);
  if (!tool.command_line.empty() && tool.script.empty()) {
    text += command_text(tool.command_line);
  } else {
    const bool is_master = process.role == JobProcess::Role::kWorker && process.index == 0;
    const std::string& arguments = process.role == JobProcess::Role::kServer ? tool.server_args
                                   : is_master                               ? tool.master_args
                                                                             : tool.args;
    HVD_TRY_ASSIGN(const std::string command, script_command(run, arguments));
    text += before_script + command;
  }
  return text;
}

}  // namespace

Result<std::string> process_text(const JobRun& run, int rank) {
  return text_of(run, rank, "");
}

Result<std::string> process_script(const JobRun& run, int rank, JobTexts& texts) {
  HVD_TRY_ASSIGN(const std::string text, text_of(run, rank, check_package(run)));
  return in_mounts(run, in_container(run, text, ContainerStep::kProcess, rank, texts), texts);
}

Result<std::string> set_up_script(const JobRun& run, const std::vector<JobNodeFacts>& facts, int node,
                                  JobTexts& texts) {
  const std::string before = kSetUpFunctions + make_folders(run);
  std::string text = has_real_mounts(run) ? kSetUpFunctions : "";
  text += make_shared_folder(run) + make_host_file(run, facts) + exported_variables(run) + make_output_folders(run);
  text += fetch_image(run);
  if (!run.job.preparation.empty()) {
    const std::string preparation = exported_variables(run) + enter_folder(run) + command_text(run.job.preparation);
    text += in_container(run, preparation, ContainerStep::kPreparation, node, texts);
  }
  return before + in_mounts(run, text, texts);
}

// The lock is on the run's folder, which is made here for that, and ends with the shells that hold it. A rank that is
// started again finds that its node is set up; a host that comes back is set up again, since it may have lost all.
Result<std::string> joining_script(const JobRun& run, const std::vector<JobNodeFacts>& facts, int rank,
                                   JobTexts& texts) {
  const int node = run.layout.processes[static_cast<std::size_t>(rank)].node;
  HVD_TRY_ASSIGN(const std::string set_up, set_up_script(run, facts, node, texts));
  HVD_TRY_ASSIGN(const std::string process, process_script(run, rank, texts));
  const std::string mark = quoted_word(run.root + "/joined-" + std::to_string(node));
  return kSetUpFunctions + make_root(run) + "exec 9<" + quoted_word(run.root) +
         " && flock 9 || hvdrun_fail 'cannot lock the folder of the job'\n"
         "if [ ! -e " +
         mark + " ]; then\n  " + bash_command(quoted_word(texts.add(set_up))) +
         " 9<&- || { hvdrun_code=$?; echo \"hvdrun: setting up $(hostname), which was to join the job, failed\" >&2; "
         "exit $hvdrun_code; }\n  : >" +
         mark + " || exit 242\nfi\nexec 9<&-\nunset HVDRUN_REGISTRY_PASSWORD\nexec " +
         bash_command(quoted_word(texts.add(process))) + "\n";
}

// The agent itself removes the folder: it is this process's parent, and every node has it. Unlike rm, it never removes
// what is mounted there. It prints what it could not remove, and hvdrun reports that.
std::string clean_mounts_script(const JobRun& run, JobTexts& texts) {
  // A user namespace hides the processes outside of it, but a descriptor that is already open stays usable.
  return "exec 9</proc/$PPID/exe 2>&1\n" +
         in_mounts(run, "exec /proc/self/fd/9 remove " + quoted_word(run.shared_at()) + "\n", texts);
}

bool has_mounts_to_clean(const JobRun& run) {
  return run.shared_at().starts_with(run.root + "/") && run.shared_at() != run.shared();
}

std::string clean_up_script(const JobRun& run) {
  const bool is_elsewhere = !run.shared_at().starts_with(run.root + "/");
  return "exec 2>&1\n" + remove_containers(run) + "exec /proc/$PPID/exe remove " + quoted_word(run.root) +
         (is_elsewhere ? " " + quoted_word(run.shared_at()) : "") + "\n";
}

}  // namespace hvd::launch

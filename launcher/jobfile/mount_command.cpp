#include "launcher/jobfile/mount_command.h"

#include <algorithm>

#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

constexpr const char* kFail = "hvdrun_fail() { printf 'hvdrun: %s\\n' \"$1\" >&2; exit 242; }\n";

// hvdrun_mount takes the mount's description, a hint, and the command to run. A server that does not answer would keep
// mount(8) for minutes or for ever, so there is a time limit. Output goes to a file, because a helper that stays would
// keep a pipe open.
constexpr const char* kMountFunction =
    "hvdrun_mount() {\n"
    "  local what=$1 hint=$2 code said\n"
    "  shift 2\n"
    "  timeout --kill-after=5 60 \"$@\" >\"$hvdrun_own/said\" 2>&1 </dev/null\n"
    "  code=$?\n"
    "  [ \"$code\" != 0 ] || return 0\n"
    "  said=$(tail -n 3 \"$hvdrun_own/said\" | tr '\\n' ' ')\n"
    "  case $code in\n"
    "  124|137) said=\"no answer within 60 s ${said:+($said)}\";;\n"
    "  127) said=\"there is no $1 here\";;\n"
    "  *) said=\"${said:-no word of why }(code $code)\";;\n"
    "  esac\n"
    "  hvdrun_fail \"$what on $(hostname): $1: $said; $hint\"\n"
    "}\n";

bool is_real(const Mount& mount) {
  return mount.file_system.has_value();
}

std::string variable_of(std::size_t place) {
  return "HVDRUN_MOUNT_PASSWORD_" + std::to_string(place);
}

std::string subject_of(const Mount& mount) {
  return "the mount '" + mount.name + "' (" + described(*mount.file_system) + ")";
}

// Returns the words of a text that the cluster's file separates by spaces, each quoted.
std::string quoted_words(const std::string& text) {
  std::string words;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    words += end > begin ? " " + quoted_word(std::string_view(text).substr(begin, end - begin)) : "";
    begin = end + 1;
  }
  return words;
}

std::string hint_of(const Mount& mount) {
  const FileSystem& system = *mount.file_system;
  const std::string map =
      "try it there by hand, or mount it there beforehand and give its directory: --mount " + mount.name + "=DIR";
  if (system.type == "nfs" || system.type == "nfs4") {
    return "mount.nfs is of the package nfs-common or nfs-utils; " + map;
  }
  return system.is_cifs() ? "mount.cifs is of the package cifs-utils; " + map : map;
}

// Writes the credentials file, whose name holds no comma, since a comma would end it in mount's options.
std::string cifs_credentials(const FileSystem& system, std::size_t place) {
  if (!system.needs_password()) {
    return "";
  }
  return "(umask 077; printf 'username=%s\\npassword=%s\\n' " + quoted_word(system.account) + " \"$" +
         variable_of(place) + "\" >\"$hvdrun_own/credentials\") || exit 242\n";
}

std::string mount_words(const FileSystem& system, const std::string& at) {
  std::string options = quoted_word(system.options);
  if (system.type == "bind") {
    return "mount --rbind" + (system.options.empty() ? "" : " -o " + options) + " -- " + quoted_word(system.source) +
           " " + at;
  }
  if (system.is_cifs() && system.needs_password()) {
    options = "credentials=\"$hvdrun_own\"/credentials" + (system.options.empty() ? "" : "," + options);
  }
  const bool has_options = !system.options.empty() || (system.is_cifs() && system.needs_password());
  return "mount -t " + system.type + (has_options ? " -o " + options : "") + " -- " + quoted_word(system.source) + " " +
         at;
}

// Returns the text that mounts by blobfuse. The cache is in the run's folder, for this one mount.
std::string blobfuse_text(const Mount& mount, std::size_t place, const std::string& at, const std::string& root) {
  const FileSystem& system = *mount.file_system;
  const std::string subject = quoted_word(subject_of(mount));
  const std::string words = " --container-name=" + quoted_word(system.source) + " --tmp-path=\"$hvdrun_cache\"" +
                            quoted_words(system.options) + "\n";
  std::string text = "hvdrun_cache=" + quoted_word(root) + "/blobfuse-$$-" + std::to_string(place) +
                     "\nmkdir -m 700 -- \"$hvdrun_cache\" || exit 242\n";
  text += "export AZURE_STORAGE_ACCESS_KEY=\"$" + variable_of(place) + "\"\n";
  text += "export AZURE_STORAGE_ACCOUNT=" + quoted_word(system.account) + " AZURE_STORAGE_AUTH_TYPE=Key\n";
  text +=
      "if command -v blobfuse2 >/dev/null 2>&1; then hvdrun_blobfuse=(blobfuse2 mount); "
      "else hvdrun_blobfuse=(blobfuse); fi\n";
  text += "hvdrun_mount " + subject + " " + quoted_word(hint_of(mount)) + " \"${hvdrun_blobfuse[@]}\" " + at + words;
  text += "unset AZURE_STORAGE_ACCESS_KEY AZURE_STORAGE_ACCOUNT AZURE_STORAGE_AUTH_TYPE\n";
  return text;
}

std::string mount_text(const JobRun& run, std::size_t place) {
  const Mount& mount = run.job.mounts[place];
  const FileSystem& system = *mount.file_system;
  const std::string at = quoted_word(run.mount_point(mount));
  if (system.type == "blobfuse") {
    return blobfuse_text(mount, place, at, run.root);
  }
  std::string text = system.is_cifs() ? cifs_credentials(system, place) : "";
  text += "hvdrun_mount " + quoted_word(subject_of(mount)) + " " + quoted_word(hint_of(mount)) + " " +
          mount_words(system, at) + "\n";
  return text + (system.is_cifs() ? "rm -f -- \"$hvdrun_own/credentials\"\n" : "");
}

// Runs inside the namespaces. $1 is the file with the text to run, $2 the user, $3 the group.
std::string inner_script(const JobRun& run) {
  const std::string own = quoted_word(run.root + "/own");
  std::string text = std::string(kFail) + kMountFunction;
  text += "hvdrun_own=" + own +
          "\nmount -t tmpfs -o mode=700,size=256k tmpfs \"$hvdrun_own\" || hvdrun_fail \"cannot mount a file system in "
          "memory at $hvdrun_own on $(hostname)\"\n";
  for (std::size_t place = 0; place < run.job.mounts.size(); ++place) {
    text += is_real(run.job.mounts[place]) ? mount_text(run, place) : "";
  }
  text += "umount -l -- \"$hvdrun_own\" || exit 242\n";
  for (const auto& [name, value] : mount_variables(run)) {
    text += "unset " + name + "\n";
  }
  // The kernel clears the parent-death signal when the user namespace changes, so it is set again.
  return text + "[ \"$2\" != 0 ] || exec " + bash_command("\"$1\"") +
         "\n"
         "exec unshare --user --map-user=\"$2\" --map-group=\"$3\" setpriv --pdeathsig KILL " +
         bash_command("\"$1\"") + "\n";
}

// Refuses, before anything is tried, users who may not mount what the job names.
std::string refuse_others(const JobRun& run) {
  for (const Mount& mount : run.job.mounts) {
    if (is_real(mount) && !mount.file_system->is_for_all()) {
      return "  hvdrun_fail " +
             quoted_word(subject_of(mount) + ": only root may mount this, and the job runs as user ") +
             "\"$EUID on $(hostname)\"" +
             quoted_word("; have root mount it there, and give its directory: --mount " + mount.name + "=DIR") + "\n";
    }
  }
  return "";
}

}  // namespace

bool has_real_mounts(const JobRun& run) {
  return std::any_of(run.job.mounts.begin(), run.job.mounts.end(), is_real);
}

std::string described(const FileSystem& system) {
  return system.type + " " + system.source;
}

Settings mount_variables(const JobRun& run) {
  Settings all;
  for (std::size_t place = 0; place < run.job.mounts.size(); ++place) {
    const Mount& mount = run.job.mounts[place];
    if (is_real(mount) && mount.file_system->needs_password()) {
      all.emplace_back(variable_of(place), mount.file_system->password);
    }
  }
  return all;
}

std::string in_mounts(const JobRun& run, const std::string& text, JobTexts& texts) {
  if (!has_real_mounts(run)) {
    return text;
  }
  return std::string(kFail) +
         "hvdrun_space=(unshare --mount --propagation private)\n"
         "if [ \"$EUID\" != 0 ]; then\n" +
         refuse_others(run) +
         "  hvdrun_space=(unshare --user --map-root-user --mount --propagation private)\n"
         "fi\n"
         "\"${hvdrun_space[@]}\" true 2>/dev/null || hvdrun_fail \"user $EUID may not make a mount namespace on "
         "$(hostname) (${hvdrun_space[*]}), without which nothing is mounted for a job; have it mounted there, and "
         "give "
         "its directory: --mount NAME=DIR\"\n"
         "exec \"${hvdrun_space[@]}\" " +
         bash_command(quoted_word(texts.add(inner_script(run)))) + " " + quoted_word(texts.add(text)) +
         " \"$EUID\" \"${GROUPS[0]}\"\n";
}

}  // namespace hvd::launch

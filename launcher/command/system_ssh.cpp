#include "launcher/command/system_ssh.h"

namespace hvd::launch {
namespace {

constexpr Duration kDefaultTimeout = std::chrono::seconds(10);

}  // namespace

RshSettings system_ssh_settings(const SshOptions& options) {
  RshSettings settings;
  settings.agent_path = options.agent_path;
  settings.environment = options.environment;
  settings.answer_time = options.answer_time;
  settings.max_handshakes = options.max_handshakes;
  settings.look_up = options.look_up;
  return settings;
}

RshCommand system_ssh_command(const SshRequest& request, Duration connect_timeout, bool has_remote_command) {
  RshCommand command;
  command.host = request.host;
  command.label = "the system's ssh";
  command.lookup = request.host;
  // ssh may use a master connection that exists, but must not open one, since that would outlive the job.
  command.argv = {"ssh", "-T",
                  "-x",  "-a",
                  "-o",  "BatchMode=yes",
                  "-o",  "ClearAllForwardings=yes",
                  "-o",  "PermitLocalCommand=no",
                  "-o",  "ControlMaster=no"};
  if (connect_timeout > Duration::zero()) {
    const auto seconds = std::chrono::ceil<std::chrono::seconds>(connect_timeout).count();
    command.argv.emplace_back("-o");
    command.argv.push_back("ConnectTimeout=" + std::to_string(seconds));
  }
  if (has_remote_command) {  // else not: an ssh before 7.6 does not know the word, and ends
    command.argv.emplace_back("-o");
    command.argv.emplace_back("RemoteCommand=none");
  }
  const std::vector<std::string> target = ssh_target_words(request);
  command.argv.insert(command.argv.end(), target.begin(), target.end());
  return command;
}

Duration ssh_connect_timeout(const SshOptions& options, const SshHostConfig& config) {
  if (options.connect_timeout > Duration::zero()) {
    return options.connect_timeout;
  }
  return config.connect_timeout > Duration::zero() ? Duration::zero() : kDefaultTimeout;
}

}  // namespace hvd::launch

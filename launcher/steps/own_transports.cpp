#include "launcher/steps/own_transports.h"

#include <utility>

#include "launcher/command/rsh.h"
#include "launcher/ssh/ssh.h"
#include "launcher/transport/local.h"

namespace hvd::launch {
namespace {

// Transports give up at 90 % of --start-timeout, so that their own error is reported instead of a bare timeout.
Duration answer_time_of(const JobSpec& job) {
  return job.start_timeout / 10 * 9;
}

SshOptions ssh_options_of(const JobSpec& job) {
  SshOptions ssh;
  ssh.port = job.ssh_port;
  ssh.identity_file = job.ssh_identity_file;
  ssh.config_file = job.ssh_config_file;
  ssh.agent_path = job.agent_path;
  ssh.environment = job.environment;
  ssh.answer_time = answer_time_of(job);
  return ssh;
}

RshOptions rsh_options_of(const JobSpec& job) {
  RshOptions rsh;
  rsh.port = job.ssh_port;
  rsh.settings.agent_path = job.agent_path;
  rsh.settings.environment = job.environment;
  rsh.settings.open_files = job.open_files;
  rsh.settings.answer_time = answer_time_of(job);
  return rsh;
}

Result<std::unique_ptr<Transport>> rsh_of(EventLoop& loop, const JobSpec& job, Log& log) {
  if (job.rsh_command.empty()) {
    return std::unique_ptr<Transport>();
  }
  HVD_TRY_ASSIGN(RshTemplate command, RshTemplate::parse(job.rsh_command));
  HVD_TRY(check_rsh_program(command, job.environment));
  return make_rsh_transport(loop, std::move(command), rsh_options_of(job), log);
}

}  // namespace

Result<OwnTransports> make_own_transports(EventLoop& loop, const JobSpec& job, Log& log) {
  OwnTransports own;
  own.local = make_local_transport(
      loop, LocalOptions{job.agent_path, job.environment, job.open_files, job.json_events ? &log : nullptr});
  own.ssh = make_ssh_transport(loop, ssh_options_of(job), log);
  HVD_TRY_ASSIGN(own.rsh, rsh_of(loop, job, log));
  return own;
}

}  // namespace hvd::launch

// hvdrun-agent: the node's side of hvdrun, one fully static executable. Started by a transport as `hvdrun-agent serve`,
// with the launcher at its standard input and output.
#include <errno.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <iostream>

#include "launcher/agent/agent_core.h"
#include "launcher/agent/guardian.h"
#include "launcher/process/spawn.h"
#include "runtime/base/event_loop.h"

namespace {

using hvd::Fd;

std::vector<std::string> own_environment() {
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    environment.emplace_back(*entry);
  }
  return environment;
}

hvd::Result<void> serve(const std::string& scratch_dir, std::vector<std::string> environment, hvd::Log& log) {
  ::signal(SIGPIPE, SIG_IGN);  // a closed session is an error of write(2), not the agent's death
  const hvd::SteadyClock clock;
  HVD_TRY_ASSIGN(const std::unique_ptr<hvd::EventLoop> loop, hvd::EventLoop::create(clock));
  hvd::launch::AgentOptions options;
  options.scratch_dir = scratch_dir;
  options.environment = std::move(environment);
  hvd::launch::AgentCore* core = nullptr;
  HVD_TRY(loop->watch_signals({SIGCHLD, SIGTERM, SIGINT, SIGHUP}, [&core](int signo) {
    if (core == nullptr) {
      return;
    }
    if (signo == SIGCHLD) {
      core->on_child_signal();
    } else {
      core->abandon("the agent got " + hvd::launch::signal_name(signo));
    }
  }));
  HVD_TRY_ASSIGN(const std::unique_ptr<hvd::launch::AgentCore> owner,
                 hvd::launch::AgentCore::create(*loop, std::move(options), Fd(STDIN_FILENO), Fd(STDOUT_FILENO), log));
  core = owner.get();
  return loop->run();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "--version") == 0) {
    std::cout << "hvdrun-agent " << HVD_VERSION << "\n";
    return 0;
  }
  if (argc != 2 || std::strcmp(argv[1], "serve") != 0) {
    std::cerr << "usage: hvdrun-agent serve   (started by hvdrun; not by hand)\n";
    return 2;
  }
  const std::vector<std::string> environment = own_environment();
  hvd::StderrLog log(hvd::LogLevel::kInfo, "hvdrun-agent");
  const std::string base = hvd::launch::value_in(environment, "TMPDIR");
  const auto code = hvd::launch::run_guarded(base.empty() ? "/tmp" : base, [&](const std::string& scratch_dir) {
    const auto served = serve(scratch_dir, environment, log);
    if (!served.ok()) {
      log.write(hvd::LogLevel::kError, served.error().message());
    }
    return served.ok() ? 0 : 1;
  });
  if (!code.ok()) {
    log.write(hvd::LogLevel::kError, code.error().message());
    return 1;
  }
  return code.value();
}

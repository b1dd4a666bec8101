// DiscoveryScript is a HostSource that runs a command of the user again and again: it prints the hosts that the job may
// use now, one a line. A run that fails, takes too long or prints something else changes nothing.
//
// Thread: loop only.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/offers/host_source.h"
#include "launcher/process/child.h"
#include "runtime/io/event_loop.h"

namespace hvd::launch {

class DiscoveryScript final : public HostSource {
 public:
  struct Options {
    std::string command;  // for /bin/sh -c
    std::vector<std::string> environment;
    std::string cwd;
    int slots = 0;                                    // of a host that says none; 0: each must say it
    Duration interval = std::chrono::seconds(1);      // from the end of a run to the next
    Duration longest_run = std::chrono::seconds(10);  // then it is killed
  };

  // The loop must outlive it.
  DiscoveryScript(EventLoop& loop, Options options);
  ~DiscoveryScript() override;

  void start(Handlers handlers) override;
  void stop() override;

 private:
  void run();
  void on_over(const std::optional<ExitStatus>& status, const std::string& how);
  void take(std::string_view printed);
  void fail(const std::string& why);
  void tell(const std::string& why);
  void run_later();

  EventLoop& loop_;
  const Options options_;
  Handlers handlers_;
  std::unique_ptr<Child> child_;
  std::string output_;
  std::string errors_;
  bool is_late_ = false;
  bool is_stopped_ = false;
  TimerId run_timer_ = 0;
  TimerId late_timer_ = 0;
  std::optional<HostList> known_;
  std::string told_;  // the last trouble
};

}  // namespace hvd::launch

// HostSource tells which hosts a running job may use, as that changes.
//
// Thread: loop only.
#pragma once

#include <functional>
#include <set>
#include <string>

#include "launcher/job/host_spec.h"

namespace hvd::launch {

// HostUse says on which hosts the job has ranks that run or are being started, and which others it has lost, so that
// something of it may still run there.
struct HostUse {
  std::set<std::string> used;
  std::set<std::string> lost;

  friend bool operator==(const HostUse&, const HostUse&) = default;
};

class HostSource {
 public:
  // Called from the loop, never from inside a call.
  struct Handlers {
    // The hosts, each named once; first the present ones, then whenever they have changed. None is possible.
    std::function<void(const HostList& hosts)> on_hosts;
    // It cannot be said which hosts there are, for this reason. The source tries on, and says each reason once.
    std::function<void(const std::string& why)> on_trouble;
    bool has_hosts = true;  // the caller has hosts, which stay as they are where none can be said
  };

  virtual ~HostSource() = default;
  HostSource(const HostSource&) = delete;
  HostSource& operator=(const HostSource&) = delete;

  virtual void start(Handlers handlers) = 0;
  // Ends what it has under way. No handler is called again. It may be called from a handler.
  virtual void stop() = 0;
  // Between start() and stop(): the job's use of its hosts has changed. For sources that give hosts to others.
  virtual void note_use(const HostUse& /*use*/) {}

 protected:
  HostSource() = default;
  // Adds to the reason why no hosts can be said what follows from it.
  static std::string with_outcome(const std::string& why, bool has_hosts) {
    return why + (has_hosts ? "; the hosts stay as they are" : "; so there is no host to begin on");
  }
};

}  // namespace hvd::launch

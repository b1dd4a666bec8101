// HostSpec is one host as the user named it. Value type.
#pragma once

#include <string>
#include <vector>

namespace hvd::launch {

struct HostSpec {
  std::string name;         // host name or numeric address, without user and port
  std::string user;         // empty: as ssh would choose
  int port = 0;             // 0: as ssh would choose
  int slots = 1;            // places for ranks
  std::vector<int> gpus{};  // GPUs that the job may use there, by number; empty: any

  friend bool operator==(const HostSpec&, const HostSpec&) = default;
};

using HostList = std::vector<HostSpec>;

// Makes one host of entries that name the same host, at its first place, with the slots summed. Otherwise one machine
// would be two nodes, and its local ranks would be counted twice.
HostList merge_repeated(HostList hosts);

}  // namespace hvd::launch

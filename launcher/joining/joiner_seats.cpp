#include "launcher/joining/joiner_seats.h"

#include <algorithm>

#include "launcher/job/text_file.h"
#include "launcher/wire/join_file.h"
#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

constexpr std::size_t kLongestName = 255;

bool is_name(const std::string& name) {
  return !name.empty() && name.size() <= kLongestName &&
         std::all_of(name.begin(), name.end(), [](char c) { return c > ' ' && c <= '~'; });
}

// Returns the name of the agent's machine in the job.
Result<std::string> name_of_machine(const ReadyMessage& ready, const std::string& address,
                                    const std::vector<SeatedNode>& nodes) {
  const auto same = std::find_if(nodes.begin(), nodes.end(), [&ready](const SeatedNode& node) {
    return !ready.machine.empty() && node.machine == ready.machine;
  });
  if (same != nodes.end()) {
    return same->host;
  }
  for (const std::string& name : {ready.host_name, address}) {
    const bool is_free =
        std::none_of(nodes.begin(), nodes.end(), [&name](const SeatedNode& node) { return node.host == name; });
    if (!name.empty() && is_free) {
      return name;
    }
  }
  return Error(Code::kInvalid, "another machine of the job is called " + ready.host_name +
                                   " too, and comes from the same address; give this one a name of its own");
}

}  // namespace

Result<JoiningRanks> seat_joiner(const ReadyMessage& ready, const std::string& address, const JobRoom& room) {
  if (ready.version != room.version) {
    return Error(Code::kInvalid,
                 "its hvdrun is of version " + shown_text(ready.version) + ", and the job's of " + room.version);
  }
  if (ready.slots < 1 || ready.slots > kMostJoinSlots) {
    return Error(Code::kInvalid, "it brings " + std::to_string(ready.slots) + " slots; 1 to " +
                                     std::to_string(kMostJoinSlots) + " are possible");
  }
  if (!is_name(ready.host_name)) {
    return Error(Code::kInvalid, "its host name is '" + shown_text(ready.host_name) + "', and so none");
  }
  const std::size_t staying_ranks = staying(room.ranks).size();
  const int free = room.most_ranks - static_cast<int>(staying_ranks);
  if (free <= 0) {
    return Error(Code::kResource,
                 "the job has " + counted(staying_ranks, "rank") + ", the most that it may have (--max-np)");
  }
  JoiningRanks joining;
  HVD_TRY_ASSIGN(joining.host.name, name_of_machine(ready, address, room.nodes));
  for (const HostedRank& rank : room.ranks) {
    if (rank.host == joining.host.name) {
      joining.first_local = std::max(joining.first_local, rank.local_rank + 1);
    }
  }
  joining.count = std::min(ready.slots, free);
  joining.host.slots = joining.count;
  return joining;
}

}  // namespace hvd::launch

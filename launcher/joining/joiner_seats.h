// seat_joiner() decides where in a running job the ranks of an agent belong that has called to join it. What the agent
// says of itself is checked. Pure.
#pragma once

#include <string>
#include <vector>

#include "launcher/offers/host_offers.h"
#include "launcher/wire/messages.h"
#include "runtime/base/result.h"

namespace hvd::launch {

// SeatedNode is a node that the job has: its name there, and its machine as its agent tells it (ReadyMessage::machine).
struct SeatedNode {
  std::string host;
  std::string machine;
};

// JobRoom is what of the job a newcomer's place depends on.
struct JobRoom {
  std::vector<SeatedNode> nodes;  // those that are there
  std::vector<HostedRank> ranks;  // likewise
  int most_ranks = 0;             // that it may have, without those that are to leave
  std::string version;            // of its hvdrun
};

// Returns as many ranks as the agent brings slots, or as there is room for. They follow those that its machine has in
// the job already, under the name that the job knows the machine by. A machine whose name another one has is named by
// its `address`. kInvalid: the agent is not to be believed, or is of another hvdrun; kResource: there is no room.
Result<JoiningRanks> seat_joiner(const ReadyMessage& ready, const std::string& address, const JobRoom& room);

}  // namespace hvd::launch

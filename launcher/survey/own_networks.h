// The addresses under which this machine may be reached by others, for a launcher whose way here shows none.
#pragma once

#include <vector>

#include "launcher/wire/messages.h"

namespace hvd::launch {

// Of interfaces that are up and running, IPv4 first; neither loopback nor link-local ones.
std::vector<NamedNetwork> own_networks();

}  // namespace hvd::launch

// Others may reach this machine under these addresses. A launcher needs them when its own way here shows none.
#pragma once

#include <vector>

#include "launcher/wire/messages.h"

namespace hvd::launch {

// Returns those of interfaces that are up and running, IPv4 first, without loopback and link-local ones.
std::vector<NamedNetwork> own_networks();

// Returns every address of this node, also those of loopback, of links alone, and of interfaces that are down.
std::vector<std::string> own_addresses();

}  // namespace hvd::launch

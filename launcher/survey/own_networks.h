// Others may reach this machine under these addresses. A launcher needs them when its own way here shows none.
#pragma once

#include <vector>

#include "launcher/wire/messages.h"

namespace hvd::launch {

// Returns those of interfaces that are up and running, IPv4 first, without loopback and link-local ones.
std::vector<NamedNetwork> own_networks();

}  // namespace hvd::launch

// These are the network interfaces of this machine that can lead to others.
#pragma once

#include <vector>

#include "launcher/wire/check_messages.h"

namespace hvd::launch {

// Returns those that are up and have an address, without loopback, in the kernel's order. The kernel itself is asked,
// since /sys may be that of another network namespace.
std::vector<InterfaceSurvey> own_interfaces();

}  // namespace hvd::launch

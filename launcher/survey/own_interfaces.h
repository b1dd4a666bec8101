// The network interfaces of this machine that can lead to others.
#pragma once

#include <vector>

#include "launcher/wire/check_messages.h"

namespace hvd::launch {

// Those that are up and have an address, without loopback; in the kernel's order. Asked of the kernel itself, since
// /sys may be that of another network namespace.
std::vector<InterfaceSurvey> own_interfaces();

}  // namespace hvd::launch

// This is what the kernel knows at once of this node: processors, memory, limits, ports, interfaces.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "launcher/wire/check_messages.h"

namespace hvd::launch {

// `root` stands before the files that are read: it is "" except in tests.
SystemSurvey own_system(const std::string& root = "");

// Returns the same text for all agents whose ranks can share memory and reach each other's sockets, and only for these:
// one boot of one kernel, and the same namespaces of mounts, networks and System V memory. Two containers differ.
std::string own_machine(const std::string& root = "");

// Returns the value of PRETTY_NAME in a text like /etc/os-release, or nothing. Pure.
std::string pretty_name(std::string_view os_release);
// Returns the first address that a text like /etc/hosts has for `name`, or nothing. Pure.
std::string address_in_hosts(std::string_view hosts, std::string_view name);
// Counts the local ports from `first` to `last` in a text like /proc/net/tcp. Pure.
std::int32_t count_used_ports(std::string_view tcp_table, std::int32_t first, std::int32_t last);

}  // namespace hvd::launch

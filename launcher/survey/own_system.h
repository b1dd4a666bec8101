// What the kernel tells of this node at once: processors, memory, limits, ports, interfaces.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "launcher/wire/check_messages.h"

namespace hvd::launch {

// `root` stands before the files that are read: "" but in tests.
SystemSurvey own_system(const std::string& root = "");

// The same text for all agents whose ranks can share memory and reach each other's sockets, and for no others: one boot
// of one kernel, and the same namespaces of mounts, networks and System V memory. Two containers of a machine differ.
std::string own_machine(const std::string& root = "");

// The value of PRETTY_NAME in a text like /etc/os-release; empty where it has none. Pure.
std::string pretty_name(std::string_view os_release);
// The address that a text like /etc/hosts has for `name`, the first; empty: none. Pure.
std::string address_in_hosts(std::string_view hosts, std::string_view name);
// How many local ports from `first` to `last` stand in a text like /proc/net/tcp. Pure.
std::int32_t count_used_ports(std::string_view tcp_table, std::int32_t first, std::int32_t last);

}  // namespace hvd::launch

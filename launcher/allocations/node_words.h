// These functions read the ways in which several engines name nodes. They are pure, but for files that variables name
// and for PATH.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/allocations/allocation.h"

namespace hvd::launch {

// "this is PBS job 12, but WHAT; -H names hosts, and --engine none leaves PBS aside".
Error half_known(const Allocation& found, const std::string& what);

// Returns the words of `text` between any of these characters; empty ones are left out.
std::vector<std::string> words_between(std::string_view text, std::string_view separators);

// Returns the lines of the file that a variable names, without empty ones. An error names both.
Result<std::vector<std::string>> lines_of(const Allocation& found, const std::string& variable,
                                          const std::string& file);

// Gives each of these hosts a slot, one that is named twice two. An error says which variable has a word that is no
// host's name, or no word.
Result<HostList> hosts_named(const Allocation& found, const std::string& variable,
                             const std::vector<std::string>& names);

// Reads a whole number that a variable may have; nothing: it is not set. Else an error names it.
Result<std::optional<int>> number_in(const Allocation& found, const Surroundings& here, const std::string& variable);

// An error where the variable is set and does not say `count`.
Result<void> check_count(const Allocation& found, const Surroundings& here, const std::string& variable, int count,
                         const std::string& counted_in);

int slots_of(const HostList& hosts);

// Gives this machine, where it is one of the hosts, the name that it knows itself by. Returns true where it is.
bool name_own_host(HostList& hosts, const Surroundings& here);

// Completes an allocation whose hosts are known: one of them must be this machine, and gets the name that it knows
// itself by. Where the engine gives no host more than one slot, -np or one rank a host decides. `variable` names the
// hosts.
FoundAllocation complete(Allocation found, const Surroundings& here, const std::string& variable);

// For engines that start the same program on every node: an error where this is not the first of them. `index` is the
// variable that says which one this is.
Result<void> check_first(const Allocation& found, const Surroundings& here, const std::string& index);

// Returns the command for a starter, "blaunch {host}", where the program is in PATH or in one of the folders; else
// nothing, so that SSH is used.
std::string starter(const Surroundings& here, const std::string& program, const std::string& words,
                    const std::vector<std::string>& folders);

}  // namespace hvd::launch

// Tunables are the runtime's settings that horovodrun takes as flags and as keys of a configuration file. Each is one
// environment variable of all ranks. One that is not given is not set, so that an inherited variable stays. Pure, but
// for reading a file.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/result.h"

namespace hvd::launch {

struct Tunable {
  enum class Kind : std::uint8_t { kInteger, kReal, kText, kSwitch };

  const char* flag;      // a switch's flag sets the variable to 1
  const char* off_flag;  // a switch's flag that sets the variable to 0; empty: there is none
  const char* key;       // in a configuration file, "section.name"; empty: there is none
  const char* variable;
  Kind kind;
  bool is_inverse;     // true for a switch: true in the file sets the variable to 0
  std::uint64_t unit;  // for an integer: the variable counts in units smaller by this factor
  double most;         // for a number: the largest value; the least is 0
  const char* help;
};

std::span<const Tunable> tunables();

// Returns the variable's value for a value of the flag or file. kInvalid says what was expected; `what` names the flag
// or key.
Result<std::string> variable_value(const Tunable& tunable, std::string_view value, const std::string& what);

// Variables and their values, in the order in which they were given.
using Settings = std::vector<std::pair<std::string, std::string>>;

// Returns after which time the ranks' runtime reports a stall, by what is set for all ranks and else by what they
// inherit ("NAME=VALUE"); 0: it never does. A value that makes no sense is the runtime's to refuse, and counts as none.
Duration stall_check_time(const Settings& set, const std::vector<std::string>& inherited);

// Reads the settings in a YAML file of horovodrun's form (sections params, autotune, timeline, stall_check,
// library_options, logging). An unknown key is an error, since a typing error would otherwise be a setting that
// silently does nothing. Errors name file:line:column.
Result<Settings> parse_config_file(const std::string& text, const std::string& file);
Result<Settings> read_config_file(const std::string& file);

// Returns the file's `controller:`, gloo or mpi, which means the same as the flag of that name; empty: it has none.
Result<std::string> parse_config_controller(const std::string& text, const std::string& file);
Result<std::string> read_config_controller(const std::string& file);

}  // namespace hvd::launch

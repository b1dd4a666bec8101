// Ticket is what a job is started with when its turn comes, even after the machine has restarted: the words,
// environment and working directory of its `submit`, and the contents of its file at that time. All of these may hold
// secrets. So it is a file of its own, apart from the records, that only the user can read, and it is removed when the
// job ends. Value type.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/result.h"

namespace hvd::launch {

struct Ticket {
  std::vector<std::string> words;        // of the command line, after "submit"
  std::vector<std::string> environment;  // "NAME=value"
  std::string cwd;
  std::string file;  // as the words name it
  std::string text;  // what the file held
  std::uint32_t umask = 022;

  friend bool operator==(const Ticket&, const Ticket&) = default;
};

std::string encode(const Ticket& ticket);
Result<Ticket> decode_ticket(std::string_view bytes);

// Writes the file whole or not at all, and syncs it to the disk.
Result<void> write_ticket(const std::string& path, const Ticket& ticket);
// Also removes the partial file of a process that was killed while writing.
void remove_ticket(const std::string& path);
Result<Ticket> read_ticket(const std::string& path);

}  // namespace hvd::launch

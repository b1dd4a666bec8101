// Ticket: what a job is started with when its turn comes, also after the machine has restarted: the words, environment
// and working directory of its submit, and its file as it was then. There may be secrets in all of them, so it is a
// file that only the user can read, apart from the records, and it is removed with the job's end. Value type.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/result.h"

namespace hvd::launch {

struct Ticket {
  std::vector<std::string> words;        // of the command line, behind "submit"
  std::vector<std::string> environment;  // "NAME=value"
  std::string cwd;
  std::string file;  // as the words name it
  std::string text;  // what it held
  std::uint32_t umask = 022;

  friend bool operator==(const Ticket&, const Ticket&) = default;
};

std::string encode(const Ticket& ticket);
Result<Ticket> decode_ticket(std::string_view bytes);

// Whole or not at all, and on the disk.
Result<void> write_ticket(const std::string& path, const Ticket& ticket);
// Also a part of one, that a process has left that was killed.
void remove_ticket(const std::string& path);
Result<Ticket> read_ticket(const std::string& path);

}  // namespace hvd::launch

// JoinFile is what `hvdrun --join-file` writes for `hvdrun join` to read: which job it is, where its hvdrun is called,
// and what proves both ends. Whoever can read it may start ranks of the job on a machine of his, so only its owner can.
// Value type.
#pragma once

#include <string>
#include <string_view>

#include "launcher/wire/engine_call.h"
#include "runtime/base/result.h"

namespace hvd::launch {

struct JoinFile {
  std::string job_id;
  std::string version;  // of hvdrun
  CallPlace place;
  CallKey key;
};

inline constexpr std::size_t kLongestJoinFile = 64U << 10U;  // bytes; a machine has a few dozen addresses at most

// One agent that joins may bring so many slots.
inline constexpr int kMostJoinSlots = 4096;

std::string join_file_text(const JoinFile& file);
// An error says what is wrong with the text.
Result<JoinFile> parse_join_file(std::string_view text);

// Writes the file whole or not at all, readable for its owner only.
Result<void> write_join_file(const std::string& path, const JoinFile& file);
// Removes the file, unless it is another job's by now.
void remove_join_file(const std::string& path, const std::string& job_id);
// Refuses a file that others may read or write, since anybody could have made it, and another user's, who could have
// programs started as us. All errors are kInvalid.
Result<JoinFile> read_join_file(const std::string& path);

}  // namespace hvd::launch

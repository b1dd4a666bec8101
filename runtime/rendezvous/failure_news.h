// FailureNews: what a rank tells of a failure at once, before its process ends, so that whoever looks for the first
// cause need not go by the order in which processes end. It travels from rank to agent and from agent to launcher.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/base/result.h"

namespace hvd {

struct FailureNews {
  enum class Kind : std::uint8_t {
    kEnds = 0,     // the program is ending, by a failure of its own
    kFollows = 1,  // the program is ending because another rank has failed or left before
    kNoticed = 2,  // something has failed, and the program may live with it
    kOver = 3,     // the runtime's word: the job is over for this rank because of another one
  };
  static constexpr std::size_t kMaxWhatBytes = 1000;

  Kind kind = Kind::kEnds;
  std::int32_t by = -1;        // the other rank, where it is known
  std::int32_t exit_code = 0;  // what the process will end with, where it ends
  std::string what;            // one line: "ValueError: no such file, train.py:12 in load"

  [[nodiscard]] std::string encode() const;
  // A text that is too long, or not one line, is refused: see one_line.
  static Result<FailureNews> decode(std::string_view body);
};

// `text` as one line of at most FailureNews::kMaxWhatBytes: control characters become blanks, and UTF-8 is not cut amid
// a character.
std::string one_line(std::string_view text);

}  // namespace hvd

// FailureNews is a rank's report of a failure, sent at once, before its process ends. The search for the first cause
// then does not depend on the order in which processes end. It travels from the rank to its agent, and on to the
// launcher.
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
    kOver = 3,     // sent by the runtime: the job is over for this rank because of another one
  };
  static constexpr std::size_t kMaxWhatBytes = 1000;

  Kind kind = Kind::kEnds;
  std::int32_t by = -1;        // the other rank, where it is known
  std::int32_t exit_code = 0;  // what the process will end with, where it ends
  std::string what;            // one line: "ValueError: no such file, train.py:12 in load"
  // False when the program has saved nothing of an elastic job's training since it started.
  bool has_committed = true;

  [[nodiscard]] std::string encode() const;
  // Refuses a text that is too long or not one line: see one_line.
  static Result<FailureNews> decode(std::string_view body);
};

// Returns `text` as one line of at most FailureNews::kMaxWhatBytes. Control characters become blanks, and no UTF-8
// character is cut.
std::string one_line(std::string_view text);

}  // namespace hvd

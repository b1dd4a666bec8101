// The targets about hvdrun check; targets.h has the list of all.
#pragma once

#include <string_view>

namespace hvd::fuzz {

// Its messages, by the first byte. What two hosts say so of themselves becomes a report that commands no terminal.
void check_messages(std::string_view input);
// What programs and the system's files say on a node.
void node_words(std::string_view input);

}  // namespace hvd::fuzz

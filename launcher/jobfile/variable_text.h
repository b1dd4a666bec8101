// Texts of a job file that may name variables ($NAME or ${NAME}), and how they become one word of a shell script, or a
// text in which the values stand. Whatever else means something to a shell ($(...), `...`, quotes) means nothing in
// them. Pure.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hvd::launch {

struct TextPiece {
  bool is_variable = false;
  std::string text;  // a variable's name, or what stands between them
};

std::vector<TextPiece> split_variables(std::string_view text);

// One word for any POSIX shell that means exactly this text.
std::string quote_word(std::string_view text);
// The same, but variables are the shell's; one that is not set is empty.
std::string quote_with_variables(std::string_view text);

// The text with the values in place of the names. nullopt of `value_of`: the name is kept in `missing`, and its value
// is empty, as a shell has it.
std::string expand_variables(std::string_view text,
                             const std::function<std::optional<std::string>(const std::string& name)>& value_of,
                             std::vector<std::string>& missing);

}  // namespace hvd::launch

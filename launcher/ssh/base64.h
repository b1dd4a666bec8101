// These functions read base64 as key files and known_hosts use it. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace hvd::launch {

std::string base64_encode(std::string_view bytes);
// Returns nullopt for anything that is not padded base64 without white space.
std::optional<std::string> base64_decode(std::string_view text);

}  // namespace hvd::launch

#include "launcher/job/output_rotation.h"

#include <optional>
#include <string>

#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

constexpr std::string_view kUnits = "KMGT";
constexpr int kMostOldFiles = 1000;

std::optional<std::uint64_t> size_of(std::string_view text) {
  unsigned shift = 0;
  if (!text.empty()) {
    const char last =
        text.back() >= 'a' && text.back() <= 'z' ? static_cast<char>(text.back() - 'a' + 'A') : text.back();
    if (const auto unit = kUnits.find(last); unit != std::string_view::npos) {
      shift = 10 * (static_cast<unsigned>(unit) + 1);
      text.remove_suffix(1);
    }
  }
  const auto number = parse_number<std::uint64_t>(text, 1);
  return number && *number <= (std::uint64_t{INT64_MAX} >> shift) ? std::optional(*number << shift) : std::nullopt;
}

}  // namespace

Result<OutputRotation> parse_output_rotation(std::string_view text) {
  const auto colon = text.find(':');
  const auto size = size_of(text.substr(0, colon));
  const auto count =
      colon == std::string_view::npos ? std::optional(1) : parse_number<int>(text.substr(colon + 1), 1, kMostOldFiles);
  if (!size || !count) {
    return Error(Code::kInvalid, "--output-rotate '" + std::string(text) +
                                     "': expected a size and how many old files to keep (1 to " +
                                     std::to_string(kMostOldFiles) + "), as in 10M or 1G:5");
  }
  return OutputRotation{*size, *count};
}

}  // namespace hvd::launch

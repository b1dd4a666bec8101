#include "launcher/job/output_rotation.h"

#include <optional>
#include <string>

#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

constexpr int kMostOldFiles = 1000;

}  // namespace

Result<OutputRotation> parse_output_rotation(std::string_view text) {
  const auto colon = text.find(':');
  const auto size = parse_byte_count(text.substr(0, colon), INT64_MAX);
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

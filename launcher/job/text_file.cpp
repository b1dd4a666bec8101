#include "launcher/job/text_file.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "runtime/base/fd.h"
#include "runtime/base/text.h"

namespace hvd::launch {
namespace {

constexpr std::size_t kMostShown = 60;

}  // namespace

// Reads with read(2), because a stream does not tell an empty file from one that cannot be read.
Result<std::string> read_text_file(const std::string& file, const std::string& what, std::size_t most) {
  const auto failed = [&] {
    return Error(Code::kInvalid, Error::from_errno("cannot read " + what + " " + file).message());
  };
  const Fd in(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  if (!in.is_open()) {
    return failed();
  }
  std::string text;
  std::array<char, 65536> buffer{};
  while (text.size() < most) {
    const ssize_t got = ::read(in.get(), buffer.data(), std::min(buffer.size(), most - text.size()));
    if (got < 0 && errno != EINTR) {
      return failed();
    }
    if (got == 0) {
      break;
    }
    text.append(buffer.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  }
  return text;
}

std::string shown_text(std::string_view text) {
  std::string shown(text.substr(0, kMostShown));
  if (text.size() > kMostShown) {
    while (!shown.empty() && (static_cast<unsigned char>(text[shown.size()]) & 0xC0U) == 0x80U) {
      shown.pop_back();  // do not cut in the middle of a character
    }
    shown += "...";
  }
  return without_controls(shown);
}

}  // namespace hvd::launch

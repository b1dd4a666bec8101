#include "launcher/process/detached.h"

#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <string>

namespace hvd::launch {
namespace {

// The process between us and the program reports a failure in at most so many bytes.
constexpr std::size_t kMostErrorBytes = 4096;

std::string read_words(int fd) {
  std::string words(kMostErrorBytes, '\0');
  std::size_t size = 0;
  while (size < words.size()) {
    const ssize_t got = ::read(fd, words.data() + size, words.size() - size);
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got <= 0) {
      break;
    }
    size += static_cast<std::size_t>(got);
  }
  words.resize(size);
  return words;
}

}  // namespace

Result<void> spawn_detached(SpawnOptions options) {
  options.dies_with_parent = false;
  options.new_session = true;
  HVD_TRY_ASSIGN(Pipe words, make_pipe());
  const pid_t middle = ::fork();
  if (middle < 0) {
    return Error::from_errno("cannot start a process (fork)");
  }
  if (middle == 0) {
    words.read_end.reset();
    const auto started = spawn(options);
    if (!started.ok()) {
      const std::string& text = started.error().message();
      [[maybe_unused]] const auto written =
          ::write(words.write_end.get(), text.data(), std::min(text.size(), kMostErrorBytes));
    }
    ::_exit(started.ok() ? 0 : 1);
  }
  words.write_end.reset();
  const std::string failure = read_words(words.read_end.get());
  int status = 0;
  while (::waitpid(middle, &status, 0) < 0 && errno == EINTR) {
  }
  if (!failure.empty()) {
    return Error(Code::kResource, failure);
  }
  return status == 0 ? Result<void>()
                     : Result<void>(Error(Code::kResource, "a process that was to start another died"));
}

}  // namespace hvd::launch

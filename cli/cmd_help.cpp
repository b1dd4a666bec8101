#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>

#include "cli/commands.h"
#include "cli/options/manual.h"
#include "runtime/base/fd.h"

namespace hvd::cli {
namespace {

// A shell runs the pager, as man(1) and git do, since $PAGER may hold options. LESS is set only if it is unset: with
// FRX a page that fits is printed and less ends, and colours and the screen stay as they are.
constexpr const char* kPager =
    "if [ -n \"$PAGER\" ]; then exec $PAGER; fi; "
    "if command -v less >/dev/null 2>&1; then LESS=${LESS-FRX} exec less; fi; exec cat";

// Replaces this process by the pager, with the text as its standard input. Returns only where that fails.
void become_pager(const std::string& text) {
  const Fd file(::memfd_create("manual", 0));
  if (!file.is_open() || ::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
      ::lseek(file.get(), 0, SEEK_SET) != 0 || ::dup2(file.get(), STDIN_FILENO) < 0) {
    return;
  }
  std::cout.flush();
  ::execl("/bin/sh", "sh", "-c", kPager, static_cast<char*>(nullptr));
}

}  // namespace

Result<int> show_help(const CliOptions& options) {
  if (options.topic.empty()) {
    std::cout << manual_topics();
    return 0;
  }
  HVD_TRY_ASSIGN(const std::string text, manual_page(options.topic));
  if (::isatty(STDOUT_FILENO) == 1) {
    become_pager(text);
  }
  std::cout << text;
  return 0;
}

}  // namespace hvd::cli

#include "launcher/sampling/activity_reader.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include <dirent.h>

#include "runtime/base/clock.h"
#include "runtime/base/text.h"
#include "runtime/core/op_kind.h"
#include "runtime/observe/activity_page.h"
#include "runtime/observe/ticks.h"

namespace hvd::launch {
namespace {

constexpr int kLongestPause = 16;
constexpr double kMostUs = 1e15;  // thirty years

// PageCopy has the same bytes as a page, in memory that only this process has.
struct PageCopy {
  alignas(ActivityPage) std::array<char, sizeof(ActivityPage)> bytes{};

  [[nodiscard]] const ActivityPage& page() const { return *reinterpret_cast<const ActivityPage*>(bytes.data()); }
};

std::optional<PageCopy> read_once(int file) {
  PageCopy copy;
  const ssize_t got = ::pread(file, copy.bytes.data(), copy.bytes.size(), 0);
  const ActivityPage& page = copy.page();
  const bool is_page = got == static_cast<ssize_t>(copy.bytes.size()) && page.magic == ActivityPage::kMagic &&
                       page.version == ActivityPage::kVersion;
  return is_page ? std::optional(copy) : std::nullopt;
}

// The part that changes under `turn`.
std::string_view waiting_part(const PageCopy& copy) {
  constexpr std::size_t kBegin = offsetof(ActivityPage, turn);
  return {copy.bytes.data() + kBegin, copy.bytes.size() - kBegin};
}

template <std::size_t size>
std::string printable(const std::array<char, size>& text) {
  std::string shown(text.data(), ::strnlen(text.data(), size));
  std::replace_if(
      shown.begin(), shown.end(), [](char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; }, '?');
  return shown;
}

// Microseconds for each tick since the page was opened; both clocks are the same in all processes of a machine.
double us_per_tick(const ActivityPage& page) {
  constexpr double kNsPerUs = 1000;
  const std::uint64_t ticks = ticks_between(page.opened_ticks, ticks_now());
  const std::uint64_t now = steady_ns();
  const std::uint64_t ns = now - std::min(now, page.opened_ns);
  return ticks == 0 ? 0 : static_cast<double>(ns) / kNsPerUs / static_cast<double>(ticks);
}

// Horovod's packages put the operation before the name that a script has given: without it the tensor has one name
// here and in the ranks' stacks.
std::string given_name(std::string tensor, const std::string& operation) {
  return tensor.starts_with(operation + ".") ? tensor.substr(operation.size() + 1) : tensor;
}

// "process set add" for "PROCESS SET ADD".
std::string kind_text(OpKind kind) {
  return lowered(name_of(kind));
}

OperationSample counts_of(const ActivityPage& page, std::size_t kind, double us) {
  const ActivityCounts& counts = page.counts.at(kind);
  const ActivityCounts& quick = page.quick.at(kind);
  // The numbers are the rank's own, so that a product may be larger than any time.
  const auto time = [us](std::uint64_t ticks) {
    return static_cast<std::uint64_t>(std::min(static_cast<double>(ticks) * us, kMostUs));
  };
  return {kind_text(static_cast<OpKind>(kind)), counts.operations + quick.operations, counts.bytes + quick.bytes,
          time(counts.lasted_ticks + quick.lasted_ticks), time(counts.waited_ticks)};
}

RuntimeSample sample_of(const PageCopy& first, const PageCopy& second) {
  const ActivityPage& page = second.page();
  RuntimeSample sample;
  const double us = us_per_tick(page);
  for (std::size_t kind = 0; kind < page.counts.size(); ++kind) {
    if (OperationSample counts = counts_of(page, kind, us); counts.operations != 0) {
      sample.operations += counts.operations;
      sample.bytes += counts.bytes;
      sample.kinds.push_back(std::move(counts));
    }
  }
  const bool is_whole = waiting_part(first) == waiting_part(second) && page.turn % 2 == 0;
  if (is_whole && page.operation.front() != '\0') {
    constexpr std::uint64_t kNsPerMs = 1'000'000;
    const std::uint64_t now = steady_ns();
    sample.operation = printable(page.operation);
    sample.tensor = given_name(printable(page.tensor), sample.operation);
    sample.for_ms = (now - std::min(now, page.asked_ns)) / kNsPerMs;
  }
  return sample;
}

void add(RuntimeSample& sum, const RuntimeSample& more) {
  sum.operations += more.operations;
  sum.bytes += more.bytes;
  for (const OperationSample& counts : more.kinds) {
    const auto found = std::find_if(sum.kinds.begin(), sum.kinds.end(),
                                    [&](const OperationSample& each) { return each.kind == counts.kind; });
    if (found == sum.kinds.end()) {
      sum.kinds.push_back(counts);
      continue;
    }
    found->operations += counts.operations;
    found->bytes += counts.bytes;
    found->lasted_us += counts.lasted_us;
    found->waited_us += counts.waited_us;
  }
}

// Two clocks that are compared anew give other times for the same ticks, by a little: times never go back.
void keep_growing(RuntimeSample& sample, RuntimeSample& last) {
  for (std::size_t i = 0, at = 0; i < last.kinds.size() && at < sample.kinds.size(); ++at) {
    if (sample.kinds[at].kind == last.kinds[i].kind) {
      sample.kinds[at].lasted_us = std::max(sample.kinds[at].lasted_us, last.kinds[i].lasted_us);
      sample.kinds[at].waited_us = std::max(sample.kinds[at].waited_us, last.kinds[i].waited_us);
      ++i;
    }
  }
  last = sample;
}

// Calls `take` with each page that the process has open.
template <typename Take>
void each_page(pid_t process, const Take& take) {
  const std::string folder = "/proc/" + std::to_string(process) + "/fd";
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir(folder.c_str()), ::closedir);
  const std::string wanted = std::string("/memfd:") + ActivityPage::kFileName + " ";
  while (const dirent* entry = directory == nullptr ? nullptr : ::readdir(directory.get())) {
    const std::string path = folder + "/" + entry->d_name;
    std::array<char, 64> target{};
    const ssize_t length = ::readlink(path.c_str(), target.data(), target.size());
    if (length > 0 && std::string_view(target.data(), static_cast<std::size_t>(length)).starts_with(wanted)) {
      take(Fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC)));
    }
  }
}

}  // namespace

// Of several pages, as a rank has that has left a job and joined it again, the last one counts.
void ActivityReader::look(Page& page, const std::vector<pid_t>& processes) {
  std::uint64_t opened_ns = 0;
  for (const pid_t process : processes) {
    each_page(process, [&](Fd file) {
      const auto copy = file.is_open() ? read_once(file.get()) : std::nullopt;
      if (copy && copy->page().has_ended == 0 && copy->page().opened_ns > opened_ns) {
        opened_ns = copy->page().opened_ns;
        page.file = std::move(file);
      }
    });
  }
}

std::optional<RuntimeSample> ActivityReader::read(pid_t root, const std::vector<pid_t>& processes) {
  Page& page = pages_[root];
  if (page.file.is_open()) {
    const auto last = read_once(page.file.get());
    if (!last || last->page().has_ended != 0) {
      if (last) {
        RuntimeSample ended = sample_of(*last, *last);
        keep_growing(ended, page.last);
        add(page.past, ended);
      }
      page.file.reset();
      page.last = RuntimeSample();
      page.pause = page.until_look = 0;
    }
  }
  if (!page.file.is_open() && --page.until_look < 0) {
    look(page, processes);
    page.pause = std::min(page.pause == 0 ? 1 : page.pause * 2, kLongestPause);
    page.until_look = page.pause - 1;
  }
  if (!page.file.is_open()) {
    return std::nullopt;
  }
  const auto first = read_once(page.file.get());
  const auto second = read_once(page.file.get());
  if (!first || !second) {
    return std::nullopt;
  }
  RuntimeSample sample = sample_of(*first, *second);
  keep_growing(sample, page.last);
  add(sample, page.past);
  return sample;
}

RuntimeSample ActivityReader::past(pid_t root) const {
  const auto found = pages_.find(root);
  return found == pages_.end() ? RuntimeSample() : found->second.past;
}

void ActivityReader::keep(const std::vector<pid_t>& roots) {
  std::erase_if(pages_, [&roots](const auto& entry) {
    return std::find(roots.begin(), roots.end(), entry.first) == roots.end();
  });
}

}  // namespace hvd::launch

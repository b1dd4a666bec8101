#include "tests/support/fake_cuda/fake_faults.h"

#include <cstdlib>
#include <map>
#include <mutex>
#include <sstream>

namespace hvd::fake {
namespace {

struct Failure {
  int calls = 0;
  int code = 0;
};

struct Faults {
  std::mutex mutex;
  std::map<std::string, std::int64_t> counts;
  std::map<std::string, Failure> failures;
};

// Never destroyed: streams may run until the process ends.
Faults& faults() {
  static auto* all = new Faults;
  return *all;
}

int usual_code(const std::string& what) {
  static constexpr int kOutOfMemory = 2;
  static constexpr int kUnknown = 999;
  return what == "cuMemAlloc" || what == "cuMemHostAlloc" ? kOutOfMemory : kUnknown;
}

}  // namespace

int count_call(const char* what) {
  Faults& all = faults();
  const std::lock_guard lock(all.mutex);
  ++all.counts[what];
  const auto wanted = all.failures.find(what);
  if (wanted == all.failures.end() || --wanted->second.calls > 0) {
    return 0;
  }
  const int code = wanted->second.code;
  all.failures.erase(wanted);
  return code;
}

std::int64_t calls_of(const std::string& what) {
  Faults& all = faults();
  const std::lock_guard lock(all.mutex);
  const auto known = all.counts.find(what);
  return known == all.counts.end() ? 0 : known->second;
}

void add_live(const char* what, int change) {
  Faults& all = faults();
  const std::lock_guard lock(all.mutex);
  all.counts[what] += change;
}

void fail_at(const std::string& what, int calls, int code) {
  Faults& all = faults();
  const std::lock_guard lock(all.mutex);
  if (calls <= 0) {
    all.failures.erase(what);
  } else {
    all.failures[what] = Failure{calls, code != 0 ? code : usual_code(what)};
  }
}

bool read_failures(const std::string& text) {
  std::istringstream items(text);
  for (std::string item; std::getline(items, item, ',');) {
    std::istringstream parts(item);
    std::string what;
    std::string calls;
    std::string code;
    std::getline(parts, what, ':');
    std::getline(parts, calls, ':');
    std::getline(parts, code, ':');
    if (what.empty() || std::atoi(calls.c_str()) <= 0) {
      return false;
    }
    fail_at(what, std::atoi(calls.c_str()), std::atoi(code.c_str()));
  }
  return true;
}

}  // namespace hvd::fake

#include "tests/support/fake_nccl/fake_faults.h"

#include <condition_variable>
#include <cstdlib>
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

namespace hvd::fake::nccl {
namespace {

struct Failure {
  int calls = 0;
  int number = 0;  // a code, or a rank
};

using Failures = std::map<std::string, Failure>;

// "ncclAllReduce:3:1,..."
Failures read(const char* variable, int usual_number) {
  Failures all;
  const char* text = std::getenv(variable);
  std::istringstream items(text == nullptr ? "" : text);
  for (std::string item; std::getline(items, item, ',');) {
    std::istringstream parts(item);
    std::string what;
    std::string calls = "1";
    std::string number = std::to_string(usual_number);
    std::getline(parts, what, ':');
    std::getline(parts, calls, ':');
    std::getline(parts, number, ':');
    all[what] = Failure{std::atoi(calls.c_str()), std::atoi(number.c_str())};
  }
  return all;
}

int number_in(const char* name, int fallback) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::atoi(text) : fallback;
}

struct Faults {
  std::mutex mutex;
  std::map<std::string, std::int64_t> counts;
  Failures fails = read("FAKE_NCCL_FAIL", 1);
  Failures hangs = read("FAKE_NCCL_HANG", -1);
  Failures kills = read("FAKE_NCCL_KILL", -1);
  Failures delays;
  int version = number_in("FAKE_NCCL_VERSION", 23000);
  bool is_silent = number_in("FAKE_NCCL_SILENT", 0) != 0;
  int delay_us = number_in("FAKE_NCCL_DELAY_US", 0);
  int delayed_rank = -1;
  int releases = 0;
  std::condition_variable released;
};

// Never destroyed: streams may run until the process ends.
Faults& faults() {
  static auto* all = [] {
    auto* made = new Faults;
    const char* text = std::getenv("FAKE_NCCL_DELAY_US");
    const std::string value = text == nullptr ? "" : text;
    if (const auto colon = value.find(':'); colon != std::string::npos) {
      made->delayed_rank = std::atoi(value.c_str() + colon + 1);
    }
    return made;
  }();
  return *all;
}

bool is_due(Failures& failures, const std::string& what, int rank) {
  const auto wanted = failures.find(what);
  if (wanted == failures.end() || (wanted->second.number >= 0 && wanted->second.number != rank) ||
      (wanted->second.calls > 0 && --wanted->second.calls > 0)) {
    return false;
  }
  if (wanted->second.calls == 0) {
    failures.erase(wanted);
  }
  return true;
}

void put(Failures& failures, const char* what, int calls, int number) {
  if (calls == 0) {
    failures.erase(what);
  } else {
    failures[what] = Failure{calls, number};
  }
}

}  // namespace

int count_call(const char* function) {
  Faults& all = faults();
  const std::lock_guard lock(all.mutex);
  ++all.counts[function];
  const auto wanted = all.fails.find(function);
  if (wanted == all.fails.end() || --wanted->second.calls > 0) {
    return 0;
  }
  const int code = wanted->second.number;
  all.fails.erase(wanted);
  return code;
}

std::int64_t calls_of(const char* what) {
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

void fail_at(const char* function, int calls, int code) {
  const std::lock_guard lock(faults().mutex);
  put(faults().fails, function, calls, code);
}

void hang_at(const char* function, int begins, int rank) {
  const std::lock_guard lock(faults().mutex);
  put(faults().hangs, function, begins, rank);
}

void set_version(int version) {
  const std::lock_guard lock(faults().mutex);
  faults().version = version;
}

void set_silent(bool is_silent) {
  const std::lock_guard lock(faults().mutex);
  faults().is_silent = is_silent;
}

void set_delay_us(int delay_us) {
  const std::lock_guard lock(faults().mutex);
  faults().delay_us = delay_us;
}

bool hangs_now(const char* function, int rank) {
  const std::lock_guard lock(faults().mutex);
  return is_due(faults().hangs, function, rank);
}

void wait_for_release() {
  Faults& all = faults();
  std::unique_lock lock(all.mutex);
  const int before = all.releases;
  all.released.wait(lock, [&] { return all.releases != before; });
}

void release() {
  const std::lock_guard lock(faults().mutex);
  ++faults().releases;
  faults().released.notify_all();
}

bool is_killed_now(const char* function, int rank) {
  const std::lock_guard lock(faults().mutex);
  return is_due(faults().kills, function, rank);
}

int delay_us(int rank) {
  const std::lock_guard lock(faults().mutex);
  return faults().delayed_rank < 0 || faults().delayed_rank == rank ? faults().delay_us : 0;
}

int version() {
  const std::lock_guard lock(faults().mutex);
  return faults().version;
}

bool is_silent() {
  const std::lock_guard lock(faults().mutex);
  return faults().is_silent;
}

}  // namespace hvd::fake::nccl

// launcher/engines/kubernetes_gang: it puts ranks on pods, and both ends find the key in a file.
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <stdlib.h>

#include "launcher/engines/kubernetes_gang.h"
#include "launcher/job/host_list.h"
#include "launcher/wire/engine_call.h"
#include "tests/support/called_placement.h"

namespace hvd::launch::kubernetes_test {

using hvd::test::placed;

namespace {

ReadyMessage pod_named(const std::string& name, std::size_t gpus = 0) {
  ReadyMessage ready;
  ready.host_name = name;
  ready.gpus.resize(gpus);
  return ready;
}

class KeyFile {
 public:
  KeyFile() {
    const int fd = ::mkstemp(path_.data());
    REQUIRE(fd >= 0);
    const Fd owner(fd);
  }
  ~KeyFile() { ::unlink(path_.c_str()); }
  KeyFile(const KeyFile&) = delete;
  KeyFile& operator=(const KeyFile&) = delete;

  // Returns the error's message; empty: the secret was read.
  std::string read(const std::string& text, mode_t mode = 0400) {
    REQUIRE(::chmod(path_.c_str(), 0600) == 0);
    std::ofstream(path_, std::ios::trunc) << text;
    REQUIRE(::chmod(path_.c_str(), mode) == 0);
    const auto secret = read_call_secret(path_);
    return secret.ok() ? "" : secret.error().message();
  }

 private:
  std::string path_ = "/tmp/hvd-key-XXXXXX";
};

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("ranks are placed by the pods' index, and pods are called by the names that they say") {
  HostList pods = unnamed_pods(2);
  spread_slots(3, pods);
  const Placement wanted = place(pods, 0).value();
  CHECK(placed(place_on_pods(wanted, false, {pod_named("b"), pod_named("a")})) == "b:2 a:1 001");
  CHECK(placed(place_on_pods(wanted, true, {pod_named("b", 3), pod_named("a")})) == "b:3 a:1 0001");
  CHECK(has(placed(place_on_pods(wanted, false, {pod_named("b"), pod_named("b")})), "two pods call themselves b"));
}

TEST_CASE("the key file is 64 hex digits that others cannot read") {
  KeyFile file;
  const std::string digits(64, 'a');
  CHECK(file.read(digits) == "");
  CHECK(file.read(digits + "\n", 0440) == "");
  const std::string made = make_call_secret().value();
  CHECK(made != make_call_secret().value());
  CHECK(file.read(made) == "");
  for (const mode_t open : {0404U, 0420U, 0401U, 0444U, 0602U}) {
    CHECK(has(file.read(digits, open), "is open to others"));
  }
  for (const std::string& wrong : {std::string(), digits.substr(1), digits + "a", digits + "\n\n", digits + "\nb",
                                   "x" + digits.substr(1), std::string(100000, 'a'), "-1" + digits.substr(2)}) {
    CHECK(has(file.read(wrong), "does not hold 64 hex digits"));
  }
  CHECK(has(read_call_secret("/").error().message(), "is no file"));
  CHECK(has(read_call_secret("/nowhere/key").error().message(), "No such file"));
}

TEST_CASE("an agent in a pod knows its index and nothing else of its seat") {
  const auto seat = seat_from("kubernetes", {"JOB_COMPLETION_INDEX=3"});
  REQUIRE(seat.ok());
  CHECK(seat.value().rank == 3);
  CHECK(seat.value().size == -1);
  CHECK(has(seat_from("kubernetes", {}).error().message(), "JOB_COMPLETION_INDEX"));
  CHECK_FALSE(seat_from("kubernetes", {"JOB_COMPLETION_INDEX=-1"}).ok());
}

}  // namespace hvd::launch::kubernetes_test

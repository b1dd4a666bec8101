// launcher/ssh/ssh_reach_words: what a user is told of a host that is not reached, also of failures that no test can
// cause on one machine.
#include "launcher/ssh/ssh_reach_words.h"

#include <errno.h>

#include <string>

#include <doctest/doctest.h>

namespace hvd::launch::ssh_reach_words_test {
namespace {

// It has the user's own words, not those of the configuration.
const std::string kTry = "try: ssh -F /my/config -p 2222 -l ada node1 true";

Error failed(int sys_errno) {
  return Error::from_errno("connect", sys_errno);
}

SshReachWords make_words() {
  SshReachWords words(SshRequest{"node1", "ada", 2222, "", "/my/config"});
  words.set_server("node1.cluster", 2200);
  return words;
}

TEST_CASE("a host is said by its name, and by its address once that is known") {
  SshReachWords words = make_words();
  CHECK(words.no_session_within(std::chrono::seconds(10)).message().starts_with("node1.cluster port 2200 did not"));
  words.set_address("10.0.0.1");
  CHECK(words.no_session_within(std::chrono::seconds(10)).message().starts_with("10.0.0.1 port 2200 did not"));
  CHECK(words.not_connected(failed(ECONNREFUSED), "fd00::1 refused, 10.0.0.1 refused").message() ==
        "cannot connect to node1.cluster port 2200: fd00::1 refused, 10.0.0.1 refused; is the host up? " + kTry);
}

TEST_CASE("each way in which a connection fails has its advice, and keeps its code") {
  SshReachWords words = make_words();
  words.set_address("10.0.0.1");
  struct Case {
    int sys_errno;
    Code code;
    std::string text;
  };
  for (const Case& c :
       {Case{ECONNREFUSED, Code::kUnreachable, "connection to 10.0.0.1 port 2200 refused; is sshd running there? "},
        Case{EHOSTUNREACH, Code::kUnreachable,
             "no route to 10.0.0.1 port 2200; is the host up and the network right? "},
        Case{ENETUNREACH, Code::kUnreachable, "no route to 10.0.0.1 port 2200; is the host up and the network right? "},
        Case{ETIMEDOUT, Code::kTimeout, "no answer from 10.0.0.1 port 2200; is the host up? "},
        Case{EACCES, failed(EACCES).code(),
             "cannot connect to 10.0.0.1 port 2200 (" + failed(EACCES).message() + "); "}}) {
    const Error error = words.not_connected(failed(c.sys_errno), "");
    CHECK(error.code() == c.code);
    CHECK(error.message() == c.text + kTry);
  }
}

}  // namespace

}  // namespace hvd::launch::ssh_reach_words_test

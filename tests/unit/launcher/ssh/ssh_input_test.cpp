// launcher/ssh/ssh_input: what goes to the remote command, and in which order, however little of it is taken at a time.
#include "launcher/ssh/ssh_input.h"

#include <string>

#include <doctest/doctest.h>

namespace hvd::launch::ssh_input_test {
namespace {

// Takes what may go now in pieces of so many bytes.
std::string take_all(SshInput& input, std::size_t step) {
  std::string taken;
  while (!input.next().empty()) {
    const std::string_view piece = input.next().substr(0, step);
    taken += piece;
    input.take(piece.size());
  }
  return taken;
}

TEST_CASE("the agent goes first, the session's bytes when it is up, and the end after all of them") {
  for (const std::size_t step : {std::size_t{1}, std::size_t{3}, std::size_t{100}}) {
    SshInput input;
    const std::string image = "an agent";
    input.write("early, ");
    input.finish();
    CHECK(!input.has_more());
    input.push(image);
    CHECK(take_all(input, step) == image);
    CHECK(input.pushed() == image.size());
    CHECK(!input.has_more());  // neither the bytes nor the end, which the shell before the agent would take
    input.begin_session();
    CHECK(input.next() == "early, ");
    input.take(2);
    CHECK(!input.is_end_next());
    input.write("and late");
    CHECK(take_all(input, step) == "rly, and late");
    CHECK(input.is_end_next());
    CHECK(input.has_more());
    input.end_sent();
    CHECK(!input.has_more());
  }
}

TEST_CASE("a node that asks for the agent again does not get its beginning again") {
  SshInput input;
  const std::string longer = "an agent for another machine";
  const std::string shorter = "an agent";
  input.push(longer);
  input.take(20);
  input.push(shorter);
  CHECK(!input.has_more());
  input.push(longer);
  CHECK(input.next() == " machine");
}

TEST_CASE("what was taken is let go, also where the queue is never empty") {
  SshInput input;
  input.begin_session();
  std::string expected;
  std::string taken;
  const std::string piece(300'000, 'x');
  for (int i = 0; i < 40; ++i) {
    const std::string more = piece + static_cast<char>('a' + i % 26);
    expected += more;
    input.write(more);
    if (i >= 3) {
      taken += input.next().substr(0, more.size());
      input.take(more.size());
    }
    CHECK(input.kept_bytes() < 8 * piece.size());
  }
  taken += take_all(input, 1000);
  CHECK(taken == expected);
}

TEST_CASE("nothing is next for a remote side that takes no more, not even the end") {
  SshInput input;
  input.begin_session();
  input.write("lost");
  input.finish();
  input.give_up();
  CHECK(!input.has_more());
  CHECK(!input.is_end_next());
}

}  // namespace

}  // namespace hvd::launch::ssh_input_test

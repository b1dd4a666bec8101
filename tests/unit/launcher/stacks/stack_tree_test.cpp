// launcher/stacks: from what the reader prints to the tree.
#include "launcher/stacks/stack_tree.h"

#include <string>
#include <vector>

#include <doctest/doctest.h>

namespace hvd::launch::stack_tree_test {
namespace {

RankStack at(int rank, std::vector<std::string> frames) {
  return {rank, 100 + rank, "node1", std::move(frames), true};
}

using Lines = std::vector<std::string>;

RankStacks read_of(const std::string& text, const std::string& why = "", const std::string& kernel = "") {
  RankStacks read;
  read.rank = 3;
  read.pid = 7;
  read.text = text;
  read.why = why;
  read.kernel = kernel;
  return read;
}

}  // namespace

TEST_CASE("ranks with equal stacks are one line") {
  CHECK(stack_tree({at(1, {"a.py:1 main", "b.py:2 f"}), at(0, {"a.py:1 main", "b.py:2 f"})}) ==
        Lines{"[0,1] a.py:1 main > b.py:2 f"});
}

TEST_CASE("the tree divides where stacks differ, and a rank that is elsewhere stands alone with its place") {
  const Lines lines = stack_tree(
      {at(0, {"t.py:9 main", "t.py:8 step", "allreduce 'w'"}), at(1, {"t.py:9 main", "data.py:31 __next__"}),
       at(2, {"t.py:9 main", "t.py:8 step", "allreduce 'w'"}), at(3, {"t.py:9 main", "t.py:8 step", "allreduce 'w'"})});
  CHECK(lines == Lines{"[0-3] t.py:9 main", "  [0,2,3] t.py:8 step > allreduce 'w'",
                       "  [1] data.py:31 __next__  (node1, pid 101)"});
}

TEST_CASE("a stack that is the beginning of another one is a branch of its own") {
  CHECK(stack_tree({at(0, {"a"}), at(1, {"a", "b"})}) ==
        Lines{"[0,1] a", "  [0] (here)  (node1, pid 100)", "  [1] b  (node1, pid 101)"});
}

TEST_CASE("ranks without a common frame are several trees, and no rank is none") {
  CHECK(stack_tree({at(0, {"a"}), at(1, {"b"})}) == Lines{"[0] a  (node1, pid 100)", "[1] b  (node1, pid 101)"});
  CHECK(stack_tree({}).empty());
}

TEST_CASE("the report says of how many ranks it is") {
  CHECK(stack_report({at(0, {"a"})}, 1).front() == "stacks of 1 running rank");
  CHECK(stack_report({at(0, {"a"})}, 2).front() == "stacks of 1 of 2 running ranks");
}

TEST_CASE("why several ranks have no stack is said once") {
  const auto without = [](int rank, const char* why) {
    RankStacks read;
    read.rank = rank;
    read.pid = 100 + rank;
    read.why = why;
    read.kernel = rank < 2 ? "sleeping" : "running";
    return stack_of(read);
  };
  CHECK(stack_report({without(2, "no py-spy"), without(0, "no py-spy"), without(1, "no py-spy")}, 3) ==
        Lines{"stacks of 3 running ranks", "  [0,1] (no stack; the kernel says: sleeping)",
              "  [2] (no stack; the kernel says: running)  (pid 102)", "  no stacks of ranks 0-2: no py-spy"});
  CHECK(stack_report({without(0, "no py-spy"), without(1, "no Python")}, 2) ==
        Lines{"stacks of 2 running ranks", "  [0] (no stack: no py-spy; the kernel says: sleeping)  (pid 100)",
              "  [1] (no stack: no Python; the kernel says: sleeping)  (pid 101)"});
}

TEST_CASE("frames of libhvd's packages are one, with the tensor's name") {
  const RankStack stack = stack_of(read_of(R"([
    {"os_thread_id": 9, "frames": [{"name": "other", "short_filename": "x.py", "line": 1}]},
    {"os_thread_id": 7, "frames": [
      {"name": "wait", "filename": "/v/horovod/common/calls.py", "short_filename": "calls.py", "line": 5, "locals": []},
      {"name": "allreduce", "filename": "/v/horovod/torch/ops.py", "short_filename": "ops.py", "line": 4,
       "locals": [{"name": "name", "repr": "\"layer4.weight\""}]},
      {"name": "step", "filename": "/w/train.py", "short_filename": "train.py", "line": 88, "locals": null}]}])"));
  CHECK(stack.is_read);
  CHECK(stack.frames == Lines{"train.py:88 step", "allreduce 'layer4.weight'"});
}

TEST_CASE("frames of Python's import are left out") {
  const RankStack stack = stack_of(read_of(R"([{"os_thread_id": 7, "frames": [
      {"name": "<module>", "filename": "/v/torch/__init__.py", "short_filename": "torch/__init__.py", "line": 9},
      {"name": "exec_module", "filename": "<frozen importlib._bootstrap_external>", "line": 940},
      {"name": "_find_and_load", "filename": "<frozen importlib._bootstrap>", "line": 1176},
      {"name": "<module>", "filename": "/w/train.py", "short_filename": "train.py", "line": 3}]}])"));
  CHECK(stack.frames == Lines{"train.py:3 <module>", "torch/__init__.py:9 <module>"});
}

TEST_CASE("native frames have no line, and control characters cannot reach the terminal") {
  const RankStack stack = stack_of(read_of(
      R"([{"os_thread_id": 7, "frames": [{"name": "poll", "line": 0}, {"name": "0x7f57ce44524a"}, {"name": "a\u001bb", "short_filename": "t.py", "line": 2}]}])"));
  CHECK(stack.frames == Lines{"t.py:2 a?b", "poll"});
}

TEST_CASE("a rank that cannot be read says why, and what the kernel knows") {
  const RankStack stack = stack_of(read_of("", "there is no py-spy", "sleeping in futex_wait"));
  CHECK_FALSE(stack.is_read);
  CHECK(stack.frames == Lines{"(no stack: there is no py-spy; the kernel says: sleeping in futex_wait)"});
}

TEST_CASE("whatever the reader prints, there is a stack or a reason") {
  for (const char* text : {"[", "{}", "[1]", "[{}]", R"([{"frames": 1}])", R"([{"frames": [1]}])", "null"}) {
    CHECK(stack_of(read_of(text)).rank == 3);
  }
}

}  // namespace hvd::launch::stack_tree_test

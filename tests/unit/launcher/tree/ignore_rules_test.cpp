#include "launcher/tree/ignore_rules.h"

#include <doctest/doctest.h>

namespace hvd::launch::ignore_rules_test {
namespace {

struct Row {
  const char* rules;
  const char* path;
  bool is_folder;
  bool is_left_out;
};

TEST_CASE("patterns mean what git's documentation says of them") {
  const Row rows[] = {
      {"*.log", "a.log", false, true},
      {"*.log", "deep/er/a.log", false, true},
      {"*.log", "a.logs", false, false},
      {"build/", "build", true, true},
      {"build/", "build", false, false},
      {"build/", "src/build", true, true},
      {"/build", "build", false, true},
      {"/build", "src/build", false, false},
      {"data/*.csv", "data/a.csv", false, true},
      {"data/*.csv", "data/old/a.csv", false, false},
      {"data/*.csv", "more/data/a.csv", false, false},
      {"**/old", "old", true, true},
      {"**/old", "a/b/old", true, true},
      {"a/**/z", "a/z", false, true},
      {"a/**/z", "a/b/c/z", false, true},
      {"a/**", "a/b/c", false, true},
      {"a/**", "a", true, false},
      {"?.py", "a.py", false, true},
      {"?.py", "ab.py", false, false},
      {"[a-c].py", "b.py", false, true},
      {"[!a-c].py", "b.py", false, false},
      {"*.pt\n!best.pt", "last.pt", false, true},
      {"*.pt\n!best.pt", "best.pt", false, false},
      {"!best.pt\n*.pt", "best.pt", false, true},
      {"# a comment\n\n  \n*.tmp  ", "x.tmp", false, true},
      {"\\#odd", "#odd", false, true},
      {"\\!odd", "!odd", false, true},
      {"*.a\r\n*.b\r\n", "x.b", false, true},
      {"/", "a", true, false},
      {"", "a", false, false},
  };
  for (const Row& row : rows) {
    CAPTURE(row.rules);
    CAPTURE(row.path);
    CHECK(IgnoreRules(row.rules).leaves_out(row.path, row.is_folder) == row.is_left_out);
  }
}

TEST_CASE("what is in a folder that is left out is left out, whatever else says so") {
  const IgnoreRules rules("data/\n!data/keep.txt\n");
  CHECK(rules.leaves_out_below("data/keep.txt", false));
  CHECK(rules.leaves_out_below("src/data/a/b", false));
  CHECK_FALSE(rules.leaves_out_below("datax/a", false));
  CHECK_FALSE(IgnoreRules().leaves_out_below("a/b", false));
}

}  // namespace

}  // namespace hvd::launch::ignore_rules_test

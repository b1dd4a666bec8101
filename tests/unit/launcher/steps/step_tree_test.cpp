// launcher/steps/step_tree.h: what of a folder --sync brings, and what hvdrun writes there itself.
#include "launcher/steps/step_tree.h"

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/unit/launcher/folder.h"

namespace hvd::launch::step_tree_test {

namespace fs = std::filesystem;

using Paths = std::vector<std::string>;

Paths brought(const JobSpec& job) {
  const auto tree = tree_of(job);
  REQUIRE_MESSAGE(tree.ok(), (tree.ok() ? "" : tree.error().message()));
  REQUIRE(tree.value());
  Paths paths;
  for (const TreeEntry& entry : tree.value()->entries) {
    paths.push_back(entry.path);
  }
  return paths;
}

TEST_CASE("of a folder of the user's that is the output folder too, only what hvdrun writes there stays") {
  const test::Folder folder;
  const std::string from = folder.path + "/project";
  test::write_file(from + "/code/train.py", "");
  for (const std::string& place : {folder.path, from, from + "/code"}) {
    test::write_file(place + "/rank.0/stdout", "");
    test::write_file(place + "/rank.01/stderr.1", "");
    test::write_file(place + "/stacks.txt", "");
  }
  test::write_file(from + "/rank.md", "");
  fs::create_symlink("project", folder.path + "/link");
  JobSpec job;
  job.cwd = from;
  job.sync_dir = ".";
  job.environment = {std::string("PATH=") + ::getenv("PATH"), "HOME=" + folder.path};
  const Paths of_code = {"code/rank.0", "code/rank.0/stdout", "code/rank.01", "code/rank.01/stderr.1",
                         "code/stacks.txt"};
  Paths all = {"code", "code/train.py", "rank.md"};
  all.insert(all.begin() + 1, of_code.begin(), of_code.end());
  for (const std::string& output : {std::string("."), from, from + "/", folder.path + "/link"}) {
    CAPTURE(output);
    job.output_dir = output;
    CHECK(brought(job) == all);
  }
  const Paths of_root = {"rank.0", "rank.0/stdout", "rank.01", "rank.01/stderr.1"};
  all.insert(all.end() - 1, of_root.begin(), of_root.end());
  all.emplace_back("stacks.txt");
  for (const std::string& output : {std::string(".."), folder.path, std::string("/")}) {  // above it
    CAPTURE(output);
    job.output_dir = output;
    CHECK(brought(job) == all);
  }
  // The ranks start in it, below the top.
  job.sync_dir = "..";
  job.cwd = from + "/code";
  job.output_dir = ".";
  all.erase(all.begin() + 1, all.begin() + 1 + static_cast<std::ptrdiff_t>(of_code.size()));
  CHECK(brought(job) == all);
  job.sync_dir = ".";
  CHECK(brought(job) == Paths{"train.py"});
  // A folder for the output alone stays here as a whole.
  job.cwd = from;
  job.output_dir = "code";
  CHECK(brought(job).front() == "rank.0");
}

TEST_CASE("where git ignores all but what hvdrun has written, that is said") {
  const test::Folder folder;
  const std::string from = folder.path + "/project";
  fs::create_directory(from);
  if (std::system(("git init " + from + " >/dev/null 2>&1").c_str()) != 0) {
    MESSAGE("SKIPPED: no git here");
    return;
  }
  JobSpec job;
  job.cwd = from;
  job.sync_dir = ".";
  job.environment = {std::string("PATH=") + ::getenv("PATH"), "HOME=" + folder.path};
  job.output_dir = "logs";
  test::write_file(from + "/logs/rank.0/stdout", "");
  CHECK(brought(job).empty());  // as a folder with nothing in it
  test::write_file(from + "/train.py", "");
  test::write_file(from + "/.git/info/exclude", "train.py\n");
  const auto refused = tree_of(job);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().message().starts_with("--sync: git ignores all that is in " + from));
}

}  // namespace hvd::launch::step_tree_test

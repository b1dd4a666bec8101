#include "launcher/tree/tree_scan.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/unit/launcher/folder.h"

namespace hvd::launch::tree_scan_test {

namespace fs = std::filesystem;

TEST_CASE("the whole of a home is not meant, unless an ignore file says what is not") {
  const test::Folder folder;
  const std::string from = folder.path + "/project";
  test::write_file(from + "/a", "one");
  test::write_file(from + "/skip/b", "two");
  ScanOptions options;
  options.environment = {"HOME=" + from};
  CHECK(scan_tree(from, options)
            .error()
            .message()
            .starts_with("--sync: " + from + " would be copied to every node with all that is in it"));
  test::write_file(from + "/.hvdignore", "skip\n");
  const auto tree = scan_tree(from, options);
  REQUIRE(tree.ok());
  REQUIRE(tree.value().entries.size() == 2);
  CHECK(tree.value().entries[1].path == "a");
  options.left_out = {from + "/a"};
  CHECK(scan_tree(from, options).value().entries.size() == 1);
  CHECK(way_within(tree.value(), from + "/skip") == "/skip");
  CHECK(way_within(tree.value(), from) == "");
  CHECK(way_within(tree.value(), folder.path) == std::nullopt);
}

TEST_CASE("what git shows is meant, wherever in a repository one stands and whatever stands in it") {
  const test::Folder folder;
  const std::string from = folder.path + "/project";
  fs::create_directory(from);
  ScanOptions options;
  options.environment = {std::string("PATH=") + ::getenv("PATH"), "HOME=" + folder.path, "GIT_DIR=/nowhere"};
  const auto git = [&from](const std::string& words) {
    return std::system(
               ("git -c user.name=t -c user.email=t@t -C " + from + " " + words + " >/dev/null 2>&1").c_str()) == 0;
  };
  if (!git("init")) {
    MESSAGE("SKIPPED: no git here");
    return;
  }
  const auto paths = [&options](const std::string& root) {
    const auto tree = scan_tree(root, options);
    REQUIRE_MESSAGE(tree.ok(), (tree.ok() ? "" : tree.error().message()));
    std::vector<std::string> found;
    for (const TreeEntry& entry : tree.value().entries) {
      found.push_back(entry.path);
    }
    return found;
  };
  using Paths = std::vector<std::string>;
  test::write_file(from + "/new/train.py", "untracked");
  CHECK(paths(from + "/new") == Paths{"train.py"});
  test::write_file(from + "/data/.gitkeep", "");
  REQUIRE(git("add data"));
  fs::create_directories(from + "/sub");  // of a submodule that was not fetched
  REQUIRE(git("update-index --add --cacheinfo 160000,1111111111111111111111111111111111111111,sub"));
  CHECK(paths(from) == Paths{"data", "data/.gitkeep", "new", "new/train.py", "sub"});
  fs::rename(from + "/data", folder.path + "/scratch");
  fs::create_symlink("../scratch", from + "/data");
  CHECK(paths(from) == Paths{"data", "new", "new/train.py", "sub"});
  // Another repository in it, into which git refuses to look because it is somebody else's, might have ignored
  // anything.
  REQUIRE(git("init inner"));
  test::write_file(from + "/inner/data.bin", "");
  const bool is_others =
      ::chown((from + "/inner").c_str(), 1234, 1234) == 0 && ::chown((from + "/inner/.git").c_str(), 1234, 1234) == 0;
  const std::string look = "HOME=" + folder.path + " git -C " + from + "/inner rev-parse >/dev/null 2>&1";
  if (is_others && std::system(look.c_str()) != 0) {
    const auto refused = scan_tree(from, options);
    REQUIRE_FALSE(refused.ok());
    CHECK(refused.error().message().starts_with("--sync: git cannot say which files of " + from +
                                                "/inner are to be copied"));
  } else {
    MESSAGE("SKIPPED: here git looks into a repository of somebody else's, or none can be made");
  }
  fs::remove_all(from + "/inner");
  test::write_file(from + "/.gitignore", "build/\n");
  test::write_file(from + "/build/train.py", "");
  CHECK(scan_tree(from + "/build", options).error().message().starts_with("--sync: git ignores all that is in"));
  fs::remove_all(from + "/.git");
  test::write_file(from + "/.git", "gitdir: /nowhere\n");
  CHECK(scan_tree(from, options).error().message().starts_with("--sync: git cannot say which files of"));
  test::write_file(from + "/.hvdignore", "new\n");
  CHECK(paths(from) == Paths{".gitignore", ".hvdignore", "build", "build/train.py", "data", "sub"});
}

TEST_CASE("empty folders are meant however deep they are, unless git ignores them or they are another repository's") {
  const test::Folder folder;
  const std::string from = folder.path + "/project";
  fs::create_directory(from);
  ScanOptions options;
  options.environment = {std::string("PATH=") + ::getenv("PATH"), "HOME=" + folder.path};
  const auto paths = [&options](const std::string& root) {
    const auto tree = scan_tree(root, options);
    REQUIRE_MESSAGE(tree.ok(), (tree.ok() ? "" : tree.error().message()));
    std::vector<std::string> found;
    for (const TreeEntry& entry : tree.value().entries) {
      found.push_back(entry.path);
    }
    return found;
  };
  using Paths = std::vector<std::string>;
  fs::create_directories(from + "/a/b/c");
  CHECK(paths(from) == Paths{"a", "a/b", "a/b/c"});
  if (std::system(("git init " + from + " >/dev/null 2>&1").c_str()) != 0) {
    MESSAGE("SKIPPED: no git here");
    return;
  }
  CHECK(paths(from) == Paths{"a", "a/b", "a/b/c"});
  CHECK(paths(from + "/a") == Paths{"b", "b/c"});
  test::write_file(from + "/.gitignore", "build/\n*.log\n");
  test::write_file(from + "/.hvdignore", "/a/b/left\n");
  for (const char* logs : {"/logs", "/a/logs"}) {  // folders that are there although all that is in them is ignored
    fs::create_directories(from + logs);
    test::write_file(from + logs + "/old.log", "");
  }
  test::write_file(from + "/a/file", "untracked");
  fs::create_directories(from + "/a/build/objects");
  fs::create_directories(from + "/a/b/left/out");
  fs::create_directories(from + "/a/inner/build");
  REQUIRE(std::system(("git init " + from + "/a/inner >/dev/null 2>&1").c_str()) == 0);
  fs::create_directories(from + "/a/inner/kept/too");
  fs::create_directories(from + "/synced-back/node1/out");
  CHECK(paths(from) == Paths{".gitignore", ".hvdignore", "a", "a/b", "a/b/c", "a/file", "a/inner", "a/inner/build",
                             "a/inner/kept", "a/inner/kept/too", "a/logs", "logs"});
  CHECK(paths(from + "/a") == Paths{"b", "b/c", "b/left", "b/left/out", "file", "inner", "inner/build", "inner/kept",
                                    "inner/kept/too", "logs"});
}

}  // namespace hvd::launch::tree_scan_test

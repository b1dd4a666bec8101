#include "launcher/process/remove_tree.h"

#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include <doctest/doctest.h>

#include "tests/unit/launcher/folder.h"

namespace hvd::launch::remove_tree_test {

namespace fs = std::filesystem;

namespace {

void write(const fs::path& file, const std::string& text) {
  fs::create_directories(file.parent_path());
  std::ofstream(file) << text;
}

constexpr int kNotAllowed = 77;

// What `work` says, in a process with mounts of its own; kNotAllowed: this user may have none.
int with_own_mounts(const std::function<int()>& work) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    const bool is_root = ::geteuid() == 0;
    const bool has_own = ::unshare(is_root ? CLONE_NEWNS : CLONE_NEWUSER | CLONE_NEWNS) == 0 &&
                         ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
    ::_exit(has_own ? work() : kNotAllowed);
  }
  int status = 0;
  REQUIRE(::waitpid(pid, &status, 0) == pid);
  REQUIRE(WIFEXITED(status));
  return WEXITSTATUS(status);
}

}  // namespace

TEST_CASE("a tree is removed with its links, and not what they lead to") {
  const test::Folder folder;
  const fs::path root = fs::path(folder.path) / "job";
  write(root / "a/b/file", "x");
  write(root / "a/.hidden", "x");
  write(root / "name with\nnewline/file", "x");
  fs::create_directories(root / "empty");
  write(fs::path(folder.path) / "precious/keep", "data");
  fs::create_directory_symlink(fs::path(folder.path) / "precious", root / "a/link");
  CHECK(remove_tree(root).ok());
  CHECK_FALSE(fs::exists(root));
  CHECK(fs::exists(fs::path(folder.path) / "precious/keep"));
  CHECK(remove_tree(root).ok());  // another node may be this machine, and have done it
  fs::create_directory_symlink(fs::path(folder.path) / "precious", root);
  CHECK(remove_tree(root).ok());
  CHECK_FALSE(fs::is_symlink(root));
  CHECK(fs::exists(fs::path(folder.path) / "precious/keep"));
}

TEST_CASE("a tree that is deeper than there may be open files, and than a path may be long, is removed") {
  const test::Folder folder;
  const std::string root = folder.path + "/job";
  REQUIRE(::mkdir(root.c_str(), 0700) == 0);
  const fs::path before = fs::current_path();
  REQUIRE(::chdir(root.c_str()) == 0);
  for (int depth = 0; depth < 3000; ++depth) {
    REQUIRE(::mkdir("folder", 0700) == 0);
    REQUIRE(::chdir("folder") == 0);
  }
  fs::current_path(before);
  const auto removed = remove_tree(root);
  INFO((removed.ok() ? "" : removed.error().message()));
  CHECK(removed.ok());
  CHECK_FALSE(fs::exists(root));
}

TEST_CASE("a folder that its owner made unreadable is removed too") {
  const test::Folder folder;
  const fs::path root = fs::path(folder.path) / "job";
  write(root / "module/file", "x");
  fs::permissions(root / "module", fs::perms::none);
  CHECK(remove_tree(root).ok());
  CHECK_FALSE(fs::exists(root));
}

TEST_CASE("only an absolute path of a folder is removed") {
  for (const char* path : {"", "relative", "/", "/tmp/", "/tmp/..", "/tmp/."}) {
    CAPTURE(path);
    CHECK_FALSE(remove_tree(path).ok());
  }
}

TEST_CASE("mountinfo tells what is mounted in a folder, with the blanks in its name") {
  const test::Folder folder;
  const std::string info = folder.path + "/mountinfo";
  write(info,
        "22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw\n"
        "30 22 0:26 / /tmp/job-12 rw - tmpfs tmpfs rw\n"
        "31 22 254:1 /home/precious /tmp/job-1/temp/my\\040share rw shared:1 - ext4 /dev/vda1 rw\n"
        "32 22 0:44 / /tmp/job-1/nfs rw master:3 - nfs4 server:/export rw\n"
        "33 22 0:45 / /tmp/job-1 rw\n");
  const std::vector<std::string> found = {"/tmp/job-1/temp/my share (ext4 /dev/vda1, of it /home/precious)",
                                          "/tmp/job-1/nfs (nfs4 server:/export)", "/tmp/job-1 ( )"};
  CHECK(mounts_within(info, "/tmp/job-1") == found);
  CHECK(mounts_within(info, "/tmp/job").empty());
}

TEST_CASE("nothing is removed of a folder in which something is mounted, and it is told what and where") {
  const test::Folder folder;
  const fs::path root = fs::path(folder.path) / "job";
  const fs::path precious = fs::path(folder.path) / "precious";
  write(precious / "keep", "data");
  write(root / "other/file", "x");
  fs::create_directories(root / "temp/share");
  const auto code = with_own_mounts([&] {
    if (::mount(precious.c_str(), (root / "temp/share").c_str(), nullptr, MS_BIND, nullptr) != 0) {
      return kNotAllowed;
    }
    const auto removed = remove_tree(root);
    if (removed.ok()) {
      return 1;
    }
    return removed.error().message().find("mounted there: " + (root / "temp/share").string() + " (") !=
                   std::string::npos
               ? 0
               : 2;
  });
  if (code == kNotAllowed) {
    MESSAGE("skipped: this user may not have mounts of his own");
    return;
  }
  CHECK(code == 0);
  CHECK(fs::exists(precious / "keep"));
  CHECK(fs::exists(root / "other/file"));
}

// The look at mountinfo is made before: here it sees nothing, as with what is mounted a moment later.
TEST_CASE("a mount that appears while a folder is removed is not entered") {
  const test::Folder folder;
  const fs::path root = fs::path(folder.path) / "job";
  const fs::path precious = fs::path(folder.path) / "precious";
  write(precious / "keep", "data");
  write(precious / "folder/keep", "data");
  fs::create_directories(root / "temp/share");
  write(root / "temp/file", "x");
  const auto code = with_own_mounts([&] {
    if (::mount(precious.c_str(), (root / "temp/share").c_str(), nullptr, MS_BIND, nullptr) != 0 ||
        ::mount((precious / "keep").c_str(), (root / "temp/file").c_str(), nullptr, MS_BIND, nullptr) != 0) {
      return kNotAllowed;
    }
    const auto removed = remove_tree(root, "/dev/null");
    return removed.ok() ? 1 : removed.error().message().find("temp") == std::string::npos ? 2 : 0;
  });
  if (code == kNotAllowed) {
    MESSAGE("skipped: this user may not have mounts of his own");
    return;
  }
  CHECK(code == 0);
  CHECK(fs::exists(precious / "keep"));
  CHECK(fs::exists(precious / "folder/keep"));
}

}  // namespace hvd::launch::remove_tree_test

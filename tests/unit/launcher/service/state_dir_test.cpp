#include "launcher/service/state_dir.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include <doctest/doctest.h>

#include "launcher/service/file_follower.h"
#include "launcher/service/ticket.h"
#include "launcher/state/exit_codes.h"
#include "tests/unit/launcher/folder.h"

namespace hvd::launch::state_dir_test {

using hvd::test::Folder;
using hvd::test::read_file;
using hvd::test::write_file;

TEST_CASE("a ticket is read back, is the user's alone, and a part of one is refused") {
  const Folder folder;
  const Ticket ticket{{"-f", "job.json"}, {"A=1", std::string("B=\xff\0x", 5)}, "/tmp", "job.json", "{}", 027};
  CHECK(decode_ticket(encode(ticket)).value() == ticket);
  const std::string bytes = encode(ticket);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    CHECK(!decode_ticket(bytes.substr(0, size)).ok());
  }
  CHECK(!decode_ticket(bytes + "x").ok());
  const std::string path = folder.path + "/ticket";
  REQUIRE(write_ticket(path, ticket).ok());
  struct stat info{};
  REQUIRE(::stat(path.c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0600);
  CHECK(read_ticket(path).value() == ticket);
  remove_ticket(path);
  CHECK(!read_ticket(path).ok());
  CHECK(write_ticket(folder.path + "/none/ticket", ticket).error().message().find("/none/ticket") != std::string::npos);
}

TEST_CASE("a lock has one holder, is seen without being taken, and is given up with its descriptor") {
  const Folder folder;
  const std::string path = folder.path + "/lock";
  CHECK(!is_locked(path));
  {
    const auto held = take_lock(path);
    REQUIRE(held.value().has_value());
    CHECK(is_locked(path));
    CHECK(!take_lock(path).value().has_value());
    const auto refused = wait_for_lock(path, hvd::Deadline::after(std::chrono::milliseconds(20)));
    REQUIRE_FALSE(refused.ok());
    CHECK(exit_code_of(refused.error()) == exit_code::kStartFailed);  // no host is unreachable
    const hvd::Fd copy = hvd::duplicate(held.value()->get()).value();
    CHECK(is_locked(path));
  }
  CHECK(!is_locked(path));
  CHECK(take_lock(path).value().has_value());
}

TEST_CASE("who waits for a folder hears of a file that is written and of a lock that is given up") {
  const Folder folder;
  auto watch = FolderWatch::on(folder.path).value();
  CHECK(!watch.wait(std::chrono::milliseconds(1)));
  {
    const auto held = take_lock(folder.path + "/lock");
  }
  CHECK(watch.wait(std::chrono::seconds(60)));
  CHECK(!is_locked(folder.path + "/lock"));
  CHECK(!watch.wait(std::chrono::milliseconds(1)));  // looking wakes nobody
  std::ofstream(folder.path + "/file") << "x";
  CHECK(watch.wait(std::chrono::seconds(60)));
  const auto patience = std::chrono::minutes(5);
  const auto begin = std::chrono::steady_clock::now();
  CHECK(!watch.wait(patience));  // soon: what was held a moment ago may be free now
  CHECK(std::chrono::steady_clock::now() - begin < patience);
}

TEST_CASE("a follower copies what is added, once, waits for a file, and begins anew with one that was emptied") {
  const Folder folder;
  const std::string path = folder.path + "/file";
  const std::string out_path = folder.path + "/out";
  const hvd::Fd out(::open(out_path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  const auto copied = [&] {
    std::ifstream file(out_path);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  FileFollower follower(path);
  REQUIRE(follower.copy_new(out.get()).ok());
  CHECK(!follower.has_found());
  std::ofstream(path) << "one\n";
  REQUIRE(follower.copy_new(out.get()).ok());
  REQUIRE(follower.copy_new(out.get()).ok());
  CHECK(copied() == "one\n");
  std::ofstream(path, std::ios::app) << "two\n";
  REQUIRE(follower.copy_new(out.get()).ok());
  CHECK(copied() == "one\ntwo\n");
  std::ofstream(path, std::ios::trunc) << "3\n";
  REQUIRE(follower.copy_new(out.get()).ok());
  CHECK(copied() == "one\ntwo\n3\n");
  // A file that is rotated gets a last line before it is renamed.
  std::ofstream(path, std::ios::app) << "four\n";
  std::filesystem::rename(path, path + ".1");
  REQUIRE(follower.copy_new(out.get()).ok());
  CHECK(copied() == "one\ntwo\n3\nfour\n");
  std::ofstream(path) << "five\n";
  REQUIRE(follower.copy_new(out.get()).ok());
  REQUIRE(follower.copy_new(out.get()).ok());
  CHECK(copied() == "one\ntwo\n3\nfour\nfive\n");
  CHECK(!FileFollower(folder.path).copy_new(out.get()).ok());
}

TEST_CASE("who waits for a lock that is removed by its holder gets one that keeps others out") {
  const Folder folder;
  const std::string path = folder.path + "/lock";
  for (int round = 0; round < 20; ++round) {
    auto held = take_lock(path).value();
    REQUIRE(held.has_value());
    std::thread remover([&] {
      ::unlink(path.c_str());
      held.reset();
    });
    const auto got = wait_for_lock(path, hvd::Deadline::after(std::chrono::seconds(60)));
    remover.join();
    REQUIRE(got.ok());
    CHECK(is_locked(path));
    CHECK(!take_lock(path).value().has_value());
  }
}

TEST_CASE("a state folder has one machine as its owner, which the others are told") {
  const Folder folder;
  CHECK(own_folder(folder.path, "login1").ok());
  CHECK(own_folder(folder.path, "login1").ok());
  CHECK(read_file(folder.path + "/machine") == "login1\n");
  const auto refused = own_folder(folder.path, "login2");
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code() == Code::kResource);
  const std::string& said = refused.error().message();
  CHECK(said.find("those of the machine login1, and this one is login2") != std::string::npos);
  CHECK(said.find("remove " + folder.path + "/machine") != std::string::npos);
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path), {}) == 1);  // no temporary file is left
}

TEST_CASE("an owner's file that a crash left empty is told with its path") {
  const Folder folder;
  write_file(folder.path + "/machine", "");
  CHECK(own_folder(folder.path, "login1").error().message() == folder.path + "/machine names no machine; remove it");
}

TEST_CASE("a folder that cannot be written has no owner") {
  CHECK(own_folder("/proc/none", "login1").error().message().find("cannot write /proc/none/machine") !=
        std::string::npos);
}

TEST_CASE("a folder of this machine's memory is not on the network, and one that is not there neither") {
  CHECK_FALSE(is_on_network("/dev/shm"));
  CHECK_FALSE(is_on_network("/proc"));
  CHECK_FALSE(is_on_network("/nowhere/at/all"));
}

}  // namespace hvd::launch::state_dir_test

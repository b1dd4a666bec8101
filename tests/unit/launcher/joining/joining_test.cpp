// launcher/joining and wire/join_file: where the ranks of a machine belong that calls to join, and the file by which it
// calls.
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include <doctest/doctest.h>

#include "launcher/joining/join_calls.h"
#include "launcher/joining/joiner_seats.h"
#include "launcher/wire/join_file.h"

namespace hvd::launch::joining_test {
namespace {

ReadyMessage caller(const std::string& host, const std::string& machine, int slots) {
  ReadyMessage ready;
  ready.version = "1";
  ready.host_name = host;
  ready.machine = machine;
  ready.slots = slots;
  return ready;
}

// Two ranks on a, one on b; six at most.
JobRoom room_of_six() {
  JobRoom room;
  room.nodes = {{"a", "machine of a"}, {"b", "machine of b"}};
  room.ranks = {{0, "a", 0}, {1, "a", 1}, {2, "b", 0}};
  room.most_ranks = 6;
  room.version = "1";
  return room;
}

JoinFile sample() {
  JoinFile file;
  file.job_id = "1a2b3c4d";
  file.version = "1.2.3";
  file.place = {"boot.42", {"10.0.0.1:4711", "[fd00::1]:4712"}};
  file.key.secret.fill(7);
  file.key.launcher.fill(9);
  return file;
}

std::string refused(const std::string& text) {
  const auto file = parse_join_file(text);
  REQUIRE_FALSE(file.ok());
  CHECK(file.error().code() == Code::kInvalid);
  return file.error().message();
}

std::string without(std::string text, const std::string& line) {
  const std::size_t at = text.find("\n" + line);
  REQUIRE(at != std::string::npos);
  return text.erase(at, text.find('\n', at + 1) - at);
}

struct Folder {
  Folder() { REQUIRE(::mkdtemp(path.data()) != nullptr); }
  ~Folder() {
    ::unlink(file().c_str());
    ::rmdir(path.c_str());
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] std::string file() const { return path + "/join"; }
  std::string path = "/tmp/hvd_join_XXXXXX";
};

}  // namespace

TEST_CASE("a machine that joins gets as many ranks as it brings slots, and no more than there is room for") {
  const auto two = seat_joiner(caller("c", "machine of c", 2), "10.0.0.3", room_of_six());
  REQUIRE(two.ok());
  CHECK(two.value().host.name == "c");
  CHECK(two.value().first_local == 0);
  CHECK(two.value().count == 2);
  CHECK(seat_joiner(caller("c", "machine of c", 8), "10.0.0.3", room_of_six()).value().count == 3);
  JobRoom full = room_of_six();
  full.most_ranks = 3;
  const auto refused = seat_joiner(caller("c", "machine of c", 1), "10.0.0.3", full);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code() == Code::kResource);
  CHECK(refused.error().message() == "the job has 3 ranks, the most that it may have (--max-np)");
  full.ranks.back().is_leaving = true;
  CHECK(seat_joiner(caller("c", "machine of c", 2), "10.0.0.3", full).value().count == 1);
}

TEST_CASE("a machine that the job has already keeps its name there, and its local ranks are counted on") {
  const auto more = seat_joiner(caller("a.example", "machine of a", 2), "10.0.0.1", room_of_six());
  REQUIRE(more.ok());
  CHECK(more.value().host.name == "a");
  CHECK(more.value().first_local == 2);
}

TEST_CASE("a machine with the name of another one is named by its address") {
  const auto other = seat_joiner(caller("a", "machine of c", 1), "10.0.0.3", room_of_six());
  REQUIRE(other.ok());
  CHECK(other.value().host.name == "10.0.0.3");
  CHECK(other.value().first_local == 0);
  JobRoom room = room_of_six();
  room.nodes.push_back({"10.0.0.3", "machine of d"});
  CHECK_FALSE(seat_joiner(caller("a", "machine of c", 1), "10.0.0.3", room).ok());
  CHECK_FALSE(seat_joiner(caller("a", "", 1), "", room_of_six()).ok());  // nor is one known by no machine at all
}

TEST_CASE("what an agent says of itself is not believed blindly") {
  for (const int slots : {0, -1, kMostJoinSlots + 1, 2'000'000'000}) {
    CHECK_FALSE(seat_joiner(caller("c", "machine of c", slots), "10.0.0.3", room_of_six()).ok());
  }
  for (const std::string& name : {std::string(), std::string("a b"), std::string("c\n"), std::string(300, 'c')}) {
    CHECK_FALSE(seat_joiner(caller(name, "machine of c", 1), "10.0.0.3", room_of_six()).ok());
  }
  ReadyMessage old = caller("c", "machine of c", 1);
  old.version = "0.9";
  CHECK(seat_joiner(old, "10.0.0.3", room_of_six()).error().message() ==
        "its hvdrun is of version 0.9, and the job's of 1");
}

TEST_CASE("the file of a job comes back as it was written, and half of it is none") {
  const std::string text = join_file_text(sample());
  const auto file = parse_join_file(text);
  REQUIRE(file.ok());
  CHECK(file.value().job_id == sample().job_id);
  CHECK(file.value().version == sample().version);
  CHECK(file.value().place.stack == sample().place.stack);
  CHECK(file.value().place.addresses == sample().place.addresses);
  CHECK(file.value().key == sample().key);
  for (const char* line : {"job", "version", "key", "stack"}) {
    CHECK(refused(without(text, line)) == "it is no file that hvdrun --join-file has written");
  }
  CHECK_FALSE(parse_join_file(without(without(text, "address 10"), "address [")).ok());
  refused("");
  refused("host a\n");
  refused(text + "more\n");
  refused(text.substr(0, text.find("key") + 20));
  std::string many = text;
  for (int count = 0; count < 1000; ++count) {
    many += "address 10.0.0.1:1\n";
  }
  refused(many);
}

TEST_CASE("the file is its owner's alone, and a later job's file is not removed") {
  const Folder folder;
  REQUIRE(write_join_file(folder.file(), sample()).ok());
  struct stat facts{};
  REQUIRE(::stat(folder.file().c_str(), &facts) == 0);
  CHECK((facts.st_mode & 0777) == 0600);
  CHECK(read_join_file(folder.file()).value().job_id == sample().job_id);
  remove_join_file(folder.file(), "another");
  CHECK(::access(folder.file().c_str(), F_OK) == 0);
  REQUIRE(::chmod(folder.file().c_str(), 0640) == 0);
  CHECK(read_join_file(folder.file()).error().message().find("chmod 600") != std::string::npos);
  REQUIRE(::chmod(folder.file().c_str(), 0600) == 0);
  if (::geteuid() == 0) {  // who joins by another user's file would run what that user wants
    REQUIRE(::chown(folder.file().c_str(), 4242, 4242) == 0);
    CHECK(read_join_file(folder.file()).error().message().find("it belongs to user 4242") != std::string::npos);
  }
  remove_join_file(folder.file(), sample().job_id);
  CHECK(::access(folder.file().c_str(), F_OK) != 0);
  CHECK(read_join_file(folder.file()).error().message().find("the job has ended") != std::string::npos);
  CHECK_FALSE(read_join_file(folder.path).ok());
  CHECK_FALSE(write_join_file(folder.path + "/none/join", sample()).ok());
}

}  // namespace hvd::launch::joining_test

// runtime/abi/lost_place.h: a process whose environment says nothing of the job in which it is a rank.
#include "runtime/abi/lost_place.h"

#include <unistd.h>

#include <filesystem>
#include <string>

#include <doctest/doctest.h>

#include "tests/unit/launcher/folder.h"

namespace hvd::lost_place_test {

const std::string kAdvice =
    " has not passed on the variables by which ranks find each other (HVD_RANK and others); let it keep its "
    "environment, as sudo -E does, or put it in front of hvdrun";

// Processes are the files of /proc of processes that are not there.
class Processes {
 public:
  void add(int process, int parent, const std::string& name, const std::string& environment,
           const std::string& open_file) const {
    const std::string folder = folder_.path + "/" + std::to_string(process);
    test::write_file(folder + "/stat",
                     std::to_string(process) + " (" + name + ") S " + std::to_string(parent) + " 1 1 0");
    test::write_file(folder + "/comm", name + "\n");
    test::write_file(folder + "/environ", environment);
    std::filesystem::create_directories(folder + "/fd");
    std::filesystem::create_symlink("/dev/null", folder + "/fd/0");
    if (!open_file.empty()) {
      open(process, 5, open_file);
    }
  }
  void open(int process, int number, const std::string& file) const {
    std::filesystem::create_symlink("/memfd:" + file + " (deleted)",
                                    folder_.path + "/" + std::to_string(process) + "/fd/" + std::to_string(number));
  }
  [[nodiscard]] std::string words(int process) const { return words_for_lost_place(process, folder_.path); }

 private:
  test::Folder folder_;
};

// The environment that a rank was started with.
std::string ranks_environment() {
  std::string text = "PATH=/bin";
  text += '\0';
  text += "HVD_RANK=1";
  text += '\0';
  return text;
}

TEST_CASE("a process below an agent of several ranks names the program that has dropped its variables") {
  const Processes processes;
  processes.add(10, 1, "hvdrun-agent", "", "hvd-ranks-4");
  processes.open(10, 6, "hvd-activity");  // of another rank, which the agent reads
  processes.add(20, 10, "sudo (1) ) S", ranks_environment(), "");
  processes.add(30, 20, "bash", "", "");
  processes.add(40, 30, "python", "", "");
  CHECK(processes.words(40) ==
        "hvdrun has started 4 ranks, and this one runs alone: sudo (1) ) S (process 20)" + kAdvice);
  // env replaces itself, so that nothing of it is left.
  processes.add(50, 10, "python", "", "");
  CHECK(processes.words(50) ==
        "hvdrun has started 4 ranks, and this one runs alone: a program in its command, as env -i," + kAdvice);
}

TEST_CASE("a process that is meant to be alone is not warned of") {
  const Processes processes;
  SUBCASE("no agent is above it") {
    processes.add(10, 1, "sshd", "", "");
    processes.add(20, 10, "bash", "XHVD_RANK=1", "other");
  }
  SUBCASE("the job has one rank, also within another job") {
    processes.add(8, 1, "hvdrun-agent", "", "hvd-ranks-4");
    processes.add(9, 8, "hvdrun", ranks_environment(), "");
    processes.add(10, 9, "hvdrun-agent", ranks_environment(), "hvd-ranks-1");
    processes.add(20, 10, "env", "", "");
  }
  SUBCASE("a job file's program is told nothing of ranks") {
    processes.add(10, 1, "hvdrun-agent", "", "hvd-ranks-0");
    processes.add(20, 10, "bash", "", "");
  }
  SUBCASE("a rank that has joined has started it") {
    processes.add(10, 1, "hvdrun-agent", "", "hvd-ranks-4");
    processes.add(20, 10, "python", ranks_environment(), "hvd-activity");
  }
  SUBCASE("the processes above it have gone, or form a circle") {
    processes.add(20, 19, "bash", "", "");
    processes.add(19, 20, "bash", "", "");
  }
  processes.add(40, 20, "python", "", "");
  CHECK(processes.words(40).empty());
}

TEST_CASE("real processes are looked at without harm") {
  CHECK(words_for_lost_place(::getpid(), "/nowhere").empty());
  CHECK(words_for_lost_place(1).empty());
}

}  // namespace hvd::lost_place_test

// launcher/process: a program is started with what it was given, and its end is decoded.
#include "launcher/process/spawn.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <doctest/doctest.h>

#include "launcher/process/exit_status.h"
#include "launcher/process/output_of.h"
#include "tests/unit/launcher/folder.h"

namespace hvd::launch::spawn_test {
namespace {

int run_to_end(const SpawnOptions& options) {
  const auto pid = spawn(options);
  REQUIRE(pid.ok());
  int status = 0;
  REQUIRE(::waitpid(pid.value(), &status, 0) == pid.value());
  return ExitStatus::from_wait(status).shell_code();
}

}  // namespace

TEST_CASE("an exit status is decoded, whether a core was dumped or not") {
  CHECK(ExitStatus::from_wait(3 << 8).shell_code() == 3);
  CHECK(ExitStatus::from_wait(SIGSEGV).shell_code() == 139);
  CHECK(ExitStatus::from_wait(SIGSEGV | 0x80).shell_code() == 139);
  CHECK(ExitStatus::from_wait(SIGKILL).text() == "was killed by signal 9 (SIGKILL)");
  CHECK(ExitStatus::from_wait(0).is_success());
}

TEST_CASE("a program is started with its own environment and directory") {
  SpawnOptions options;
  options.argv = {"sh", "-c", "[ \"$A\" = '1 2' ] && [ \"$(pwd)\" = / ] && exit 7"};
  options.environment = {"PATH=/usr/bin:/bin", "A=1 2"};
  options.cwd = "/";
  CHECK(run_to_end(options) == 7);
}

TEST_CASE("a text file that names no interpreter is run by the shell, and a program for another machine is not") {
  const test::Folder folder;
  const auto write = [&folder](const std::string& name, const std::string& text) {
    std::string path = folder.path + "/" + name;
    test::write_file(path, text);
    ::chmod(path.c_str(), 0755);
    return path;
  };
  SpawnOptions options;
  options.argv = {write("script", "[ \"$1\" = 'a b' ] && exit 7\n"), "a b"};
  options.environment = {"PATH=/usr/bin:/bin"};
  CHECK(run_to_end(options) == 7);
  options.argv = {write("binary", std::string("\x7f"
                                              "ELF\0\0exit 7\n",
                                              13))};
  const auto refused = spawn(options);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().message().find("Exec format error") != std::string::npos);
}

TEST_CASE("a child ignores no signal that its parent ignored") {
  ::signal(SIGPIPE, SIG_IGN);
  SpawnOptions options;
  options.argv = {"sh", "-c", "kill -PIPE $$; exit 1"};
  options.environment = {"PATH=/usr/bin:/bin"};
  CHECK(run_to_end(options) == 128 + SIGPIPE);
}

TEST_CASE("a program that closes its output and lives on is waited for only as long as is said") {
  const auto done = output_of({"sh", "-c", "echo hello; exec >&- 2>&-; exec sleep 1000"}, {"PATH=/usr/bin:/bin"},
                              hvd::Deadline::after(std::chrono::seconds(1)));
  REQUIRE(!done.ok());
  CHECK(done.error().code() == hvd::Code::kTimeout);
  const auto endless = output_of({"yes"}, {"PATH=/usr/bin:/bin"}, hvd::Deadline::after(std::chrono::minutes(5)));
  CHECK(endless.error().message() == "'yes' has printed more than 1 MiB and was stopped");
  const auto killed =
      output_of({"sh", "-c", "kill -TERM $$"}, {"PATH=/usr/bin:/bin"}, hvd::Deadline::after(std::chrono::minutes(5)));
  REQUIRE_FALSE(killed.ok());
  CHECK(killed.error().code() == hvd::Code::kCancelled);
  CHECK(output_of({"echo", "hello"}, {"PATH=/usr/bin:/bin"}, hvd::Deadline::after(std::chrono::minutes(5))).value() ==
        "hello\n");
}

// Who is not root cannot become another user, and root may enter all directories.
TEST_CASE("a program behind a closed directory is not called missing" * doctest::skip(::geteuid() != 0)) {
  const hvd::test::Folder folder;
  REQUIRE(::chmod(folder.path.c_str(), 0700) == 0);
  REQUIRE(::seteuid(65534) == 0);
  const auto found = find_program(folder.path + "/closed/python", "", "");
  REQUIRE(::seteuid(0) == 0);
  CHECK(found.error().message() ==
        "cannot reach '" + folder.path +
            "/closed/python': this user (65534) may not enter one of its directories, or of those that a link in it "
            "leads to");
}

TEST_CASE("what cannot be started is told with its path and reason") {
  SpawnOptions options;
  options.environment = {"PATH=/usr/bin:/bin"};
  options.argv = {"no-such-program"};
  CHECK(spawn(options).error().code() == hvd::Code::kNotFound);
  options.argv = {"/etc/passwd"};
  CHECK(spawn(options).error().message().find("not an executable") != std::string::npos);
  options.argv = {"true"};
  options.cwd = "/no/such/directory";
  CHECK(spawn(options).error().message().find("cannot enter the working directory '/no/such/directory'") !=
        std::string::npos);
}

}  // namespace hvd::launch::spawn_test

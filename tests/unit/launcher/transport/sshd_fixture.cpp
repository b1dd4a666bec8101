#include "tests/unit/launcher/transport/sshd_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "runtime/io/socket.h"

extern char** environ;

namespace hvd::launch::test {
namespace {

constexpr const char* kSshd = "/usr/sbin/sshd";

std::vector<char*> c_words(const std::vector<std::string>& words) {
  std::vector<char*> out;
  for (const std::string& word : words) {
    out.push_back(const_cast<char*>(word.c_str()));
  }
  out.push_back(nullptr);
  return out;
}

int free_port() {
  const Fd listener = listen_tcp(SocketAddress::make("127.0.0.1", 0).value()).value();
  return SocketAddress::local_of(listener.get()).value().port();
}

}  // namespace

TempDir::TempDir() {
  std::string pattern = "/tmp/hvd-transport-XXXXXX";
  HVD_CHECK(::mkdtemp(pattern.data()) != nullptr);
  dir_ = pattern;
}

TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(dir_, ignored);
}

void write_file(const std::string& path, const std::string& text, unsigned mode) {
  std::ofstream(path, std::ios::binary) << text;
  HVD_CHECK(::chmod(path.c_str(), mode) == 0);
}

std::string read_file(const std::string& path) {
  const std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return std::move(text).str();
}

bool file_exists(const std::string& path) {
  return ::access(path.c_str(), F_OK) == 0;
}

std::vector<std::string> list_dir(const std::string& path) {
  std::vector<std::string> names;
  std::error_code failed;
  for (const auto& entry : std::filesystem::directory_iterator(path, failed)) {
    names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

Ran run_program(const std::vector<std::string>& argv, const std::string& input,
                const std::vector<std::string>& environment) {
  const TempDir dir;
  write_file(dir.path("in"), input);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 0, dir.path("in").c_str(), O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, 1, dir.path("out").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&files, 1, 2);
  // Under nohup, and in the background of a script, these are ignored. A shell that inherits this can set no trap for
  // them.
  sigset_t usual;
  sigemptyset(&usual);
  for (const int number : {SIGHUP, SIGINT, SIGQUIT}) {
    sigaddset(&usual, number);
  }
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setsigdefault(&attributes, &usual);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  pid_t pid = -1;
  const int failed = ::posix_spawnp(&pid, argv[0].c_str(), &files, &attributes, c_words(argv).data(),
                                    environment.empty() ? environ : c_words(environment).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  Ran ran;
  int status = 0;
  if (failed == 0 && ::waitpid(pid, &status, 0) == pid) {
    ran.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    ran.output = read_file(dir.path("out"));
  }
  return ran;
}

std::string Sshd::missing() {
  if (!file_exists(kSshd)) {
    return "no /usr/sbin/sshd";
  }
  return run_program({"ssh", "-V"}).status == 0 ? "" : "no ssh client";
}

Sshd::Sshd(const std::string& extra) {
  ::mkdir("/run/sshd", 0755);  // sshd wants it when it runs as root; fails harmlessly else
  run_program({"ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path("host_ed25519")});
  run_program({"ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path("id_ed25519")});
  ::mkdir(path("cache").c_str(), 0700);
  write_file(path("authorized_keys"), read_file(path("id_ed25519.pub")));
  write_file(path("known_hosts"), "");
  for (int i = 0; i < 5 && !start(extra); ++i) {  // another process may take the free port first
  }
  HVD_CHECK(pid_ > 0);
}

bool Sshd::start(const std::string& extra) {
  port_ = free_port();
  // SHLVL: from 2 on, bash does not read the ~/.bashrc of whoever runs the tests, which may be slow or print something.
  write_file(path("sshd_config"), extra + "\nPort " + std::to_string(port_) + "\nListenAddress 127.0.0.1\nHostKey " +
                                      path("host_ed25519") + "\nAuthorizedKeysFile " + path("authorized_keys") +
                                      "\nStrictModes no\nUsePAM no\nPidFile none\nPasswordAuthentication no\n"
                                      "KbdInteractiveAuthentication no\nPermitRootLogin yes\nSetEnv XDG_CACHE_HOME=" +
                                      path("cache") + " SHLVL=5\n");
  Pipe log = make_pipe().value();
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, log.write_end.get(), 2);
  const std::vector<std::string> argv = {kSshd, "-D", "-e", "-f", path("sshd_config")};
  const int failed = ::posix_spawn(&pid_, kSshd, &files, nullptr, c_words(argv).data(), environ);
  posix_spawn_file_actions_destroy(&files);
  HVD_CHECK(failed == 0);
  log.write_end.reset();
  std::string text;
  std::array<char, 1024> buffer{};
  ssize_t got = 0;
  while (text.find("listening on") == std::string::npos &&
         (got = ::read(log.read_end.get(), buffer.data(), buffer.size())) > 0) {
    text.append(buffer.data(), static_cast<std::size_t>(got));
  }
  if (got <= 0) {  // it ended; its words help whoever reads the test's output
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
    std::fputs(text.c_str(), stderr);
    return false;
  }
  log.read_end.release();  // sshd must not die of SIGPIPE; it writes less than the pipe holds
  return true;
}

Sshd::~Sshd() {
  if (pid_ > 0) {
    ::kill(pid_, SIGTERM);
    ::waitpid(pid_, nullptr, 0);
  }
}

std::string Sshd::write_client_config(const std::string& extra) const {
  std::string text = extra + "\nHost node1 node2 node3\n  HostName 127.0.0.1\nHost *\n  Port " + std::to_string(port_) +
                     "\n  IdentityFile " + path("id_ed25519") + "\n  IdentitiesOnly yes\n  IdentityAgent none\n" +
                     "  UserKnownHostsFile " + path("known_hosts") + "\n  GlobalKnownHostsFile " +
                     path("global_known_hosts") + "\n  StrictHostKeyChecking accept-new\n  HashKnownHosts no\n";
  write_file(path("ssh_config"), text);
  return path("ssh_config");
}

std::vector<pid_t> Sshd::session_pids() const {
  const std::string pid = std::to_string(pid_);
  std::istringstream words(read_file("/proc/" + pid + "/task/" + pid + "/children"));
  std::vector<pid_t> pids;
  for (pid_t child = 0; words >> child;) {
    pids.push_back(child);
  }
  return pids;
}

}  // namespace hvd::launch::test

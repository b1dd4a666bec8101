// The agent's part of a check: errands, surveys of a made-up machine, probes over real sockets; and its messages.
#include "launcher/survey/node_check.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include <doctest/doctest.h>
#include <stdlib.h>

#include "launcher/survey/errand.h"
#include "launcher/survey/link_probe.h"
#include "launcher/survey/own_cgroup.h"
#include "launcher/survey/own_software.h"
#include "launcher/survey/own_system.h"
#include "launcher/survey/python_survey.h"
#include "launcher/wire/check_messages.h"
#include "runtime/io/socket.h"
#include "runtime/rendezvous/handshake.h"
#include "tests/support/refusing_port.h"

namespace hvd::launch::node_check_test {

namespace fs = std::filesystem;

namespace {

// A folder that stands for /, with files in it.
struct FakeRoot {
  std::string path;

  FakeRoot() {
    std::string name = (fs::temp_directory_path() / "hvdrun-check-XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~FakeRoot() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  FakeRoot(const FakeRoot&) = delete;
  FakeRoot& operator=(const FakeRoot&) = delete;

  void write(const std::string& file, const std::string& text) const {
    fs::create_directories(fs::path(path + "/" + file).parent_path());
    std::ofstream(path + "/" + file) << text;
  }
};

// Generous: these tests also run on machines that are busy with something else.
constexpr Duration kPatience = std::chrono::seconds(300);

struct Turning {
  SteadyClock clock;
  std::unique_ptr<EventLoop> loop = EventLoop::create(clock).value();

  void until(const std::function<bool()>& is_done) const {
    const Deadline deadline = Deadline::after(kPatience);
    while (!is_done()) {
      REQUIRE(!deadline.has_passed());
      REQUIRE(loop->turn(Deadline::after(std::chrono::seconds(1))).ok());
    }
  }
};

}  // namespace

TEST_CASE("an errand's answer comes, however long it is") {
  const Turning turning;
  std::optional<Result<std::string>> answer;
  const std::string text(300'000, 'x');
  const auto errand = Errand::start(
      *turning.loop, kPatience, Fd(), [&](int) { return text; },
      [&](Result<std::string> got) { answer = std::move(got); });
  REQUIRE(errand.ok());
  turning.until([&] { return answer.has_value(); });
  CHECK(answer->value() == text);
  while (::waitpid(-1, nullptr, 0) > 0) {
  }
}

TEST_CASE("an errand that hangs is ended and told; so is one that ends without an answer") {
  const Turning turning;
  std::optional<Result<std::string>> late;
  std::optional<Result<std::string>> silent;
  const auto hangs = Errand::start(
      *turning.loop, std::chrono::milliseconds(20), Fd(),
      [](int) {
        ::pause();
        return std::string();
      },
      [&](Result<std::string> got) { late = std::move(got); });
  const auto dies = Errand::start(
      *turning.loop, kPatience, Fd(),
      [](int) {
        ::raise(SIGKILL);
        return std::string("never");
      },
      [&](Result<std::string> got) { silent = std::move(got); });
  turning.until([&] { return late.has_value() && silent.has_value(); });
  CHECK(late->error().code() == Code::kTimeout);
  CHECK(!silent->ok());
  int ended = 0;
  while (::waitpid(-1, nullptr, 0) > 0) {
    ++ended;
  }
  CHECK(ended == 2);
}

TEST_CASE("an errand ends with its owner, and holds no descriptor but its own") {
  const Turning turning;
  Pipe pipe = make_pipe().value();
  {
    const auto errand = Errand::start(
        *turning.loop, kPatience, Fd(),
        [](int) {
          ::pause();
          return std::string();
        },
        [](const Result<std::string>&) {});
    REQUIRE(errand.ok());
    pipe.write_end.reset();
    char byte = 0;
    CHECK(::read(pipe.read_end.get(), &byte, 1) == 0);  // else the copy would still hold the other end
  }
  int status = 0;
  CHECK(::waitpid(-1, &status, 0) > 0);
  CHECK(WIFSIGNALED(status));
}

TEST_CASE("cgroup limits: the narrowest of version 2's groups") {
  const FakeRoot root;
  root.write("proc/self/cgroup", "0::/system.slice/job.scope\n");
  CHECK(own_cgroup_limits(root.path).processors == 0);
  CHECK(own_cgroup_limits(root.path).memory == kUnlimited);
  root.write("sys/fs/cgroup/system.slice/job.scope/cpu.max", "max 100000\n");
  root.write("sys/fs/cgroup/system.slice/job.scope/memory.max", "8589934592\n");
  root.write("sys/fs/cgroup/system.slice/cpu.max", "150000 100000\n");
  root.write("sys/fs/cgroup/system.slice/memory.max", "max\n");
  root.write("sys/fs/cgroup/system.slice/pids.max", "512\n");
  const CgroupLimits limits = own_cgroup_limits(root.path);
  CHECK(limits.processors == doctest::Approx(1.5));
  CHECK(limits.memory == 8589934592);
  CHECK(limits.processes == 512);
}

TEST_CASE("cgroup limits: version 1, in a container that sees the machine's path") {
  const FakeRoot root;
  root.write("proc/self/cgroup", "5:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\nnonsense\n");
  root.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "4294967296\n");
  root.write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "200000\n");
  root.write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  CHECK(own_cgroup_limits(root.path).memory == 4294967296);
  CHECK(own_cgroup_limits(root.path).processors == doctest::Approx(2));
  root.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  root.write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  CHECK(own_cgroup_limits(root.path).memory == kUnlimited);
  CHECK(own_cgroup_limits(root.path).processors == 0);
}

TEST_CASE("names, addresses and ports out of the system's files") {
  CHECK(pretty_name("NAME=x\nPRETTY_NAME=\"Debian 12\"\n") == "Debian 12");
  CHECK(pretty_name("PRETTY_NAME=Alpine") == "Alpine");
  CHECK(pretty_name("PRETTY_NAME=\"") == "\"");
  CHECK(pretty_name("").empty());
  const std::string hosts = "127.0.0.1 localhost\n# 1.2.3.4 node1\n127.0.1.1\tnode1.lan node1 # own\n10.0.0.1 node1\n";
  CHECK(address_in_hosts(hosts, "node1") == "127.0.1.1");
  CHECK(address_in_hosts(hosts, "own").empty());
  CHECK(address_in_hosts(hosts, "node2").empty());
  const std::string tcp =
      "  sl  local_address rem_address\n   0: 0100007F:8000 00000000:0000 0A\n"
      "   1: 0100007F:8000 0100007F:0016 01\n   2: 00000000:0016 00000000:0000 0A\n   3: bad\n";
  CHECK(count_used_ports(tcp, 32768, 60999) == 1);
  CHECK(count_used_ports("", 0, 65535) == 0);
}

TEST_CASE("what this machine says of itself can be sent and read") {
  const SystemSurvey system = own_system();
  CHECK(system.processors > 0);
  CHECK(system.memory > 0);
  CHECK(system.listen_error.empty());
  const auto read = SystemSurvey::decode(system.encode());
  REQUIRE(read.ok());
  CHECK(read.value().kernel == system.kernel);
  CHECK(read.value().interfaces.size() == system.interfaces.size());
}

TEST_CASE("what Python, nvidia-smi and mpirun print, also between noise") {
  SoftwareSurvey software;
  read_python_answer(
      "warning: x\nhvdrun.python 3.12.1\r\nhvdrun.torch 2.4\nhvdrun.other 1\nhvdrun.torch_cuda\n"
      "hvdrun.package numpy 2.0\nhvdrun.package attrs 23.1.0\nhvdrun.package\n",
      software);
  CHECK(software.packages ==
        std::vector<std::pair<std::string, std::string>>{{"", ""}, {"attrs", "23.1.0"}, {"numpy", "2.0"}});
  CHECK(software.python == "3.12.1");
  CHECK(software.torch == "2.4");
  CHECK(software.torch_cuda.empty());
  CHECK(software.python_error.empty());
  SoftwareSurvey silent;
  read_python_answer("hello\n", silent);
  CHECK(!silent.python_error.empty());
  read_gpu_answer("NVIDIA H200, 143771, 570.1\nNVIDIA A100, PCIe, [N/A], 570.1\nnonsense\n,\n", software);
  REQUIRE(software.gpus.size() == 2);
  CHECK(software.gpus[0].memory == std::uint64_t{143771} << 20U);
  CHECK(software.gpus[1].name == "NVIDIA A100, PCIe");
  CHECK(software.gpus[1].memory == 0);
  CHECK(software.driver == "570.1");
  CHECK(mpirun_version("mpirun (Open MPI) 4.1.4\n\nReport bugs to\n") == "Open MPI 4.1.4");
  CHECK(mpirun_version("HYDRA build details:\n") == "HYDRA build details:");
  CHECK(mpirun_version("").empty());
}

TEST_CASE("every message of a check is read as it was written, and refused when it is cut or longer") {
  SurveyRequest survey;
  survey.start.argv = {"python"};
  survey.programs = {"python", "python3"};
  survey.start.ranks.resize(1);
  survey.wants_mpirun = true;
  SoftwareSurvey software;
  software.gpus = {{"H200", 7}};
  software.cache.path = "/c";
  ProbeResult probed;
  probed.stage = ProbeStage::kStream;
  probed.round_trip = std::chrono::microseconds(7);
  const auto check = [](const std::string& body, const auto& decode) {
    const auto whole = decode(body);
    REQUIRE(whole.ok());
    CHECK(whole.value().encode() == body);
    for (std::size_t size = 0; size < body.size(); ++size) {
      CHECK(!decode(std::string_view(body).substr(0, size)).ok());
    }
    CHECK(!decode(body + "x").ok());
  };
  check(ClockMessage{3, 1'795'348'800'000'000'000}.encode(), ClockMessage::decode);
  check(survey.encode(), SurveyRequest::decode);
  check(own_system().encode(), SystemSurvey::decode);
  check(software.encode(), SoftwareSurvey::decode);
  check(ProbeRequest{4, true, 0, 1, "10.0.0.1:1", 500}.encode(), ProbeRequest::decode);
  check(ListeningMessage{4, 4711, ""}.encode(), ListeningMessage::decode);
  check(probed.encode(), ProbeResult::decode);
}

TEST_CASE("a message with a number that cannot be is refused") {
  CHECK(!ClockMessage::decode(ClockMessage{0, -1}.encode()).ok());
  CHECK(!ListeningMessage::decode(ListeningMessage{0, 65536, ""}.encode()).ok());
  CHECK(!ListeningMessage::decode(ListeningMessage{0, 0, ""}.encode()).ok());
  ProbeResult result;
  result.stream_time = Duration(-1);
  CHECK(!ProbeResult::decode(result.encode()).ok());
  SystemSurvey system;
  system.processor_limit = std::numeric_limits<double>::quiet_NaN();
  CHECK(!SystemSurvey::decode(system.encode()).ok());
}

namespace {

struct Listening {
  Fd fd = listen_tcp(SocketAddress::make("127.0.0.1", 0).value()).value();
  std::string address = SocketAddress::local_of(fd.get()).value().text();
};

ProbeRequest probe_to(const std::string& address, bool dials) {
  ProbeRequest request;
  request.number = 7;
  request.dials = dials;
  request.from = 2;
  request.to = 5;
  request.address = address;
  return request;
}

const Deadline kSoon = Deadline::after(std::chrono::hours(1));

JobSecret secret_of(std::uint8_t byte) {
  JobSecret secret{};
  secret.fill(byte);
  return secret;
}

}  // namespace

TEST_CASE("two ends of a probe measure the link between them, also when strangers call") {
  const Listening listening;
  std::vector<Fd> strangers;
  strangers.push_back(connect_tcp(SocketAddress::parse(listening.address).value(), kSoon).value());
  REQUIRE(send_all(strangers.back().get(), as_bytes(std::string(200, 'x')), kSoon).ok());
  strangers.push_back(connect_tcp(SocketAddress::parse(listening.address).value(), kSoon).value());
  strangers.back().reset();
  ProbeResult listened;
  std::thread acceptor([&] {
    listened = answer_probe(listening.fd.get(), probe_to("", false), secret_of(1), Deadline::after(kPatience));
  });
  const ProbeResult dialed = dial_probe(probe_to(listening.address, true), secret_of(1), Deadline::after(kPatience));
  acceptor.join();
  CHECK(dialed.stage == ProbeStage::kDone);
  CHECK(dialed.error.empty());
  CHECK(dialed.number == 7);
  CHECK(dialed.dialed);
  CHECK(dialed.round_trip > Duration::zero());
  CHECK(listened.stage == ProbeStage::kDone);
  CHECK(listened.bytes > 0);
  CHECK(listened.bytes <= kProbeBytes);
  CHECK(listened.stream_time > Duration::zero());
}

TEST_CASE("strangers who connect and say nothing do not take the time of the node that is waited for") {
  const Listening listening;
  std::vector<Fd> strangers;
  for (int i = 0; i < 20; ++i) {
    strangers.push_back(connect_tcp(SocketAddress::parse(listening.address).value(), kSoon).value());
  }
  const auto began = std::chrono::steady_clock::now();
  ProbeResult listened;
  std::thread acceptor([&] {
    // One after the other they would take 20 s.
    listened =
        answer_probe(listening.fd.get(), probe_to("", false), secret_of(1), Deadline(began + std::chrono::seconds(15)));
  });
  const ProbeResult dialed =
      dial_probe(probe_to(listening.address, true), secret_of(1), Deadline(began + std::chrono::seconds(15)));
  acceptor.join();
  CHECK(dialed.error == "");
  CHECK(dialed.stage == ProbeStage::kDone);
  CHECK(listened.stage == ProbeStage::kDone);
}

namespace {

// Strangers at a listener, or at who has called one: what each of them says again and again until the test is over.
struct Stranger {
  const char* name;
  std::string says;
  Duration every;
};

const std::vector<Stranger> kStrangers = {
    {"garbage", std::string(4096, '\x9c'), Duration::zero()},
    {"endless text", "HTTP/1.1 200 OK\r\n", Duration::zero()},
    {"lengths of 2^31", std::string("HVDL\2\0", 6) + std::string("\0\0\0\x80\0\0\0\x80", 8), Duration::zero()},
    {"one byte a second", "H", std::chrono::seconds(1)},
    {"silence", "", std::chrono::seconds(1)}};

// Talks until it is hung up on, or the test is over.
void talk(int fd, const Stranger& stranger, const std::atomic<bool>& is_over) {
  for (Deadline next = Deadline::after(Duration::zero()); !is_over;) {
    ssize_t sent = 0;
    if (next.has_passed()) {
      sent = ::send(fd, stranger.says.data(), stranger.says.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      next = Deadline::after(stranger.every);
    }
    pollfd hung_up{fd, 0, 0};
    ::poll(&hung_up, 1, sent > 0 && stranger.every == Duration::zero() ? 0 : 10);
    if ((hung_up.revents & (POLLHUP | POLLERR)) != 0) {
      return;
    }
  }
}

// The first who calls.
Fd accept_one(int listener) {
  pollfd ready{listener, POLLIN, 0};
  REQUIRE(::poll(&ready, 1, kSoon.poll_ms()) == 1);
  return accept_ready(listener).value();
}

}  // namespace

namespace {

// Several of each kind of stranger, who have called a listener and talk until they go.
class Callers {
 public:
  Callers(const Listening& listening, int of_each) {
    for (const Stranger& stranger : kStrangers) {
      for (int i = 0; i < of_each; ++i) {
        auto fd = connect_tcp(SocketAddress::parse(listening.address).value(), kSoon);
        threads_.emplace_back([this, &stranger, fd = std::move(fd).value()] { talk(fd.get(), stranger, is_over_); });
      }
    }
  }
  ~Callers() {
    is_over_ = true;
    for (std::thread& thread : threads_) {
      thread.join();
    }
  }
  Callers(const Callers&) = delete;
  Callers& operator=(const Callers&) = delete;

 private:
  std::atomic<bool> is_over_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace

TEST_CASE("whatever strangers say, and however slowly, the node that is waited for is answered beside them") {
  const Listening listening;
  const Callers callers(listening, 5);
  ProbeResult listened;
  std::thread acceptor([&] {
    listened = answer_probe(listening.fd.get(), probe_to("", false), secret_of(1), Deadline::after(kPatience));
  });
  const ProbeResult dialed = dial_probe(probe_to(listening.address, true), secret_of(1), Deadline::after(kPatience));
  acceptor.join();
  CHECK(dialed.error == "");
  CHECK(dialed.stage == ProbeStage::kDone);
  CHECK(listened.error == "");
  CHECK(listened.stage == ProbeStage::kDone);
}

TEST_CASE("whatever strangers say in place of the node that is waited for, a probe ends at its deadline") {
  const Listening listening;
  const Callers callers(listening, 1);
  const ProbeResult listened = answer_probe(listening.fd.get(), probe_to("", false), secret_of(1),
                                            Deadline::after(std::chrono::milliseconds(1500)));
  CHECK(listened.stage == ProbeStage::kConnect);
  CHECK(!listened.error.empty());
}

TEST_CASE("whatever a stranger says who is called, a probe ends by its deadline") {
  for (const Stranger& stranger : kStrangers) {
    CAPTURE(std::string(stranger.name));
    const Listening listening;
    std::atomic<bool> is_over = false;
    std::thread called([&] { talk(accept_one(listening.fd.get()).get(), stranger, is_over); });
    const ProbeResult dialed =
        dial_probe(probe_to(listening.address, true), secret_of(1), Deadline::after(std::chrono::milliseconds(300)));
    is_over = true;
    called.join();
    CHECK(dialed.stage == ProbeStage::kProve);
    CHECK(!dialed.error.empty());
  }
}

TEST_CASE("a node that has proved itself, and sends without end, does not hold a probe beyond its deadline") {
  const Listening listening;
  std::atomic<bool> is_over = false;
  std::thread sender([&] {
    const Fd fd = connect_tcp(SocketAddress::parse(listening.address).value(), kSoon).value();
    HandshakeConnector handshake(secret_of(1), LinkClaim{LinkRole::kData, 2, 5}, make_nonce().value());
    REQUIRE(prove(fd.get(), handshake, kSoon).ok());
    REQUIRE(send_all(fd.get(), as_bytes("hvd-data"), kSoon).ok());
    talk(fd.get(), {"zeros", std::string(1U << 16U, '\0'), Duration::zero()}, is_over);
  });
  const ProbeResult listened =
      answer_probe(listening.fd.get(), probe_to("", false), secret_of(1), Deadline::after(std::chrono::seconds(5)));
  is_over = true;
  sender.join();
  CHECK(listened.stage == ProbeStage::kStream);
  CHECK(listened.bytes > 0);
}

TEST_CASE("an end that does not know the secret measures nothing") {
  const Listening listening;
  ProbeResult listened;
  std::thread acceptor([&] {
    listened = answer_probe(listening.fd.get(), probe_to("", false), secret_of(1),
                            Deadline::after(std::chrono::seconds(3)));  // it waits for the right one so long
  });
  const ProbeResult dialed = dial_probe(probe_to(listening.address, true), secret_of(2), Deadline::after(kPatience));
  acceptor.join();
  CHECK(dialed.stage == ProbeStage::kProve);
  CHECK(!dialed.error.empty());
  CHECK(listened.stage == ProbeStage::kConnect);
  CHECK(listened.error.find("secret") != std::string::npos);
}

TEST_CASE("where nobody answers, or what answers says nothing, a probe ends at its deadline and says how far it came") {
  const Listening listening;  // connects, and says nothing
  const ProbeResult silent =
      dial_probe(probe_to(listening.address, true), secret_of(1), Deadline::after(std::chrono::milliseconds(50)));
  CHECK(silent.stage == ProbeStage::kProve);
  const RefusingPort closed;
  const ProbeResult refused = dial_probe(probe_to(closed.text(), true), secret_of(1), Deadline::after(kPatience));
  CHECK(refused.stage == ProbeStage::kConnect);
  CHECK(refused.error.find("refused") != std::string::npos);
  const ProbeResult wrong = dial_probe(probe_to("nonsense", true), secret_of(1), kSoon);
  CHECK(wrong.stage == ProbeStage::kConnect);
  const Listening lonely;
  const ProbeResult none =
      answer_probe(lonely.fd.get(), probe_to("", false), secret_of(1), Deadline::after(std::chrono::milliseconds(50)));
  CHECK(none.stage == ProbeStage::kConnect);
  CHECK(!none.error.empty());
}

TEST_CASE("an agent that is asked answers; two of them measure their link, and a wrong question ends the session") {
  const Turning turning;
  std::vector<std::pair<AgentMessage, std::string>> said;
  const auto node_with = [&](const char*) {
    NodeCheck::Node node;
    node.environment = {"PATH=/usr/bin:/bin"};
    node.secret = secret_of(3);
    node.environment_of = [](const StartMessage&) { return std::vector<std::string>{"PATH=/usr/bin:/bin"}; };
    node.send = [&said](AgentMessage type, std::string_view body) { said.emplace_back(type, body); };
    return node;
  };
  const auto find = [&](AgentMessage type) {
    return std::find_if(said.begin(), said.end(), [type](const auto& message) { return message.first == type; });
  };
  NodeCheck a(*turning.loop, node_with("a"));
  NodeCheck b(*turning.loop, node_with("b"));
  REQUIRE(a.on_question(AgentMessage::kAskClock, number_body(4)).ok());
  CHECK(ClockMessage::decode(said.back().second).value().number == 4);
  CHECK(ClockMessage::decode(said.back().second).value().unix_ns > 1'700'000'000'000'000'000);

  SurveyRequest survey;
  survey.start.argv = {"python3", "/no/such/script.py"};
  survey.programs = {"no-such-program", "sh"};
  survey.start.ranks.resize(1);
  survey.start.cwd = "/no/such/folder";
  survey.patience_ms = 300'000;
  REQUIRE(a.on_question(AgentMessage::kAskSurvey, survey.encode()).ok());
  CHECK(find(AgentMessage::kSystem) != said.end());
  turning.until([&] { return find(AgentMessage::kSoftware) != said.end(); });
  const SoftwareSurvey software = SoftwareSurvey::decode(find(AgentMessage::kSoftware)->second).value();
  CHECK(software.program == "/usr/bin/sh");
  CHECK(!software.directory.error.empty());
  CHECK(software.script_error.find("no such script: '/no/such/script.py'") == 0);
  CHECK(software.temporary.error.empty());

  ProbeRequest listen = probe_to("127.0.0.1", false);
  listen.patience_ms = 300'000;
  REQUIRE(b.on_question(AgentMessage::kAskProbe, listen.encode()).ok());
  const ListeningMessage listening = ListeningMessage::decode(find(AgentMessage::kListening)->second).value();
  REQUIRE(listening.error.empty());
  ProbeRequest dial = probe_to("127.0.0.1:" + std::to_string(listening.port), true);
  dial.patience_ms = 300'000;
  REQUIRE(a.on_question(AgentMessage::kAskProbe, dial.encode()).ok());
  turning.until([&] {
    return std::count_if(said.begin(), said.end(), [](const auto& m) { return m.first == AgentMessage::kProbed; }) == 2;
  });
  for (const auto& [type, body] : said) {
    if (type == AgentMessage::kProbed) {
      CHECK(ProbeResult::decode(body).value().stage == ProbeStage::kDone);
    }
  }
  said.clear();
  listen.address = "192.0.2.77";  // not this machine's
  REQUIRE(b.on_question(AgentMessage::kAskProbe, listen.encode()).ok());
  CHECK(!ListeningMessage::decode(said.back().second).value().error.empty());
  CHECK(!a.on_question(AgentMessage::kAskProbe, "x").ok());
  CHECK(!a.on_question(AgentMessage::kStart, "").ok());
  while (::waitpid(-1, nullptr, 0) > 0) {
  }
}

}  // namespace hvd::launch::node_check_test

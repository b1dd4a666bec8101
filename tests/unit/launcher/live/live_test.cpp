// launcher/live: a job's socket, with calls as another command makes them.
#include <signal.h>
#include <sys/stat.h>

#include <array>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>
#include <stdlib.h>

#include "launcher/live/live_client.h"
#include "launcher/live/live_server.h"
#include "runtime/io/socket.h"

namespace hvd::launch::live_test {
namespace {

class NoLog final : public Log {
 public:
  void write(LogLevel, std::string_view) override {}
};

struct Place {
  Place() {
    std::string name = "/tmp/hvd-live-XXXXXX";
    path = ::mkdtemp(name.data()) != nullptr ? name : "";
  }
  ~Place() { std::filesystem::remove_all(path); }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;
  std::string path;
};

LiveJob job_of(const std::string& id, const std::string& name = "") {
  LiveJob job;
  job.id = id;
  job.name = name;
  job.pid = 1234;
  job.size = 2;
  job.command = "python train.py";
  return job;
}

// A job whose loop runs in a thread of its own.
class Job {
 public:
  Job(const std::string& folder, const LiveJob& self) {
    ::signal(SIGPIPE, SIG_IGN);  // as in hvdrun: callers may leave before they have read
    server_ = LiveServer::listen(*loop_, LiveFolder(folder), self, log_).value();
    server_->on_question(LiveMessage::kAskStatus, [this](LiveServer::CallerId caller, std::string_view body) {
      if (body == "nonsense") {
        return Result<void>(Error(Code::kInvalid, "this question is nonsense"));
      }
      for (const char* part : {"one", "two"}) {
        server_->send(caller, LiveMessage::kStatus, part);
      }
      server_->over(caller);
      return Result<void>();
    });
    thread_ = std::thread([this] { REQUIRE(loop_->run().ok()); });
  }
  ~Job() {
    loop_->stop();
    thread_.join();
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

 private:
  SteadyClock clock_;
  NoLog log_;
  std::unique_ptr<EventLoop> loop_ = EventLoop::create(clock_).value();
  std::unique_ptr<LiveServer> server_;
  std::thread thread_;
};

Deadline patience() {
  return Deadline::after(std::chrono::seconds(300));
}

}  // namespace

TEST_CASE("a running job is found in its user's folder and says what it is") {
  const Place place;
  const Job job(place.path, job_of("0a1b2c3d", "night"));
  const auto jobs = running_jobs(LiveFolder(place.path)).value();
  REQUIRE(jobs.size() == 1);
  CHECK(jobs[0].job.id == "0a1b2c3d");
  CHECK(jobs[0].job.command == "python train.py");
  CHECK(choose_job(jobs, "").value().job.id == "0a1b2c3d");
  CHECK(choose_job(jobs, "night").value().job.id == "0a1b2c3d");
  CHECK(choose_job(jobs, "0a1").value().job.id == "0a1b2c3d");
  CHECK(choose_job(jobs, "1234").value().job.id == "0a1b2c3d");
  CHECK(jobs[0].since.size() == std::string("2026-11-22T01:02:03Z").size());
}

TEST_CASE("an answer is a stream of parts with an end, or a refusal") {
  const Place place;
  const Job job(place.path, job_of("aa"));
  const std::string socket = LiveFolder(place.path).socket_of("aa");
  auto answer = LiveAnswer::ask(socket, LiveMessage::kAskStatus, "").value();
  CHECK(answer.next(patience()).value()->body == "one");
  CHECK(answer.next(patience()).value()->body == "two");
  CHECK_FALSE(answer.next(patience()).value());
  auto refused = LiveAnswer::ask(socket, LiveMessage::kAskStatus, "nonsense").value();
  CHECK(refused.next(patience()).error().message() == "this question is nonsense");
  auto unknown = LiveAnswer::ask(socket, LiveMessage::kAskStacks, "").value();
  CHECK(unknown.next(patience()).error().message().find("cannot answer this question") != std::string::npos);
}

TEST_CASE("bytes that are no question end the connection and not the job") {
  const Place place;
  const Job job(place.path, job_of("aa"));
  const std::string socket = LiveFolder(place.path).socket_of("aa");
  const Fd stranger = connect_unix(socket, patience()).value();
  const std::string text(100, 'x');
  REQUIRE(send_all(stranger.get(), Bytes(reinterpret_cast<const std::uint8_t*>(text.data()), text.size()), patience())
              .ok());
  std::array<std::uint8_t, 1> byte{};
  CHECK(recv_exact(stranger.get(), byte, patience()).error().code() == Code::kLostPeer);
  CHECK(running_jobs(LiveFolder(place.path)).value().size() == 1);
}

TEST_CASE("the socket of an hvdrun that was killed is removed") {
  const Place place;
  const std::string path = LiveFolder(place.path).socket_of("dead");
  {
    const Fd listener = listen_unix(path).value();
  }
  REQUIRE(std::filesystem::exists(path));
  CHECK(running_jobs(LiveFolder(place.path)).value().empty());
  CHECK_FALSE(std::filesystem::exists(path));
}

TEST_CASE("no job and an unknown one are told, and of several each has a line by which a user knows it") {
  const std::string day = "\n  aa (day)  pid 1234, since 2026-11-22T01:02:03Z: python train.py";
  const std::string both = day + "\n  ab  pid 1234: python train.py";
  std::vector<FoundJob> two{{job_of("aa", "day"), "", "2026-11-22T01:02:03Z"}, {job_of("ab"), ""}};
  CHECK(choose_job({}, "").error().message().find("no job of yours runs on this machine") == 0);
  CHECK(choose_job({}, "x").error().message().find("no job 'x' of yours runs") == 0);
  CHECK(choose_job(two, "x").error().message() == "no job 'x' runs; those that do:" + both);
  CHECK(choose_job(two, "").error().message() == "2 jobs run; name one of them:" + both);
  CHECK(choose_job(two, "a").error().message() == "several jobs are called 'a'; name one of them:" + both);
  two[1].job.command = "python train.py --data /a/long/path/of/many/folders/that/goes/on/and/on";
  CHECK(choose_job(two, "").error().message() ==
        "2 jobs run; name one of them:" + day + "\n  ab  pid 1234: python train.py --data ...");
}

TEST_CASE("an hvdrun that does not answer is named, and not called absent") {
  const Place place;
  const Fd stopped = listen_unix(LiveFolder(place.path).socket_of("0a1b2c3d")).value();  // nobody accepts
  const auto jobs = running_jobs(LiveFolder(place.path)).value();
  REQUIRE(jobs.size() == 1);
  CHECK(jobs.front().is_silent);
  for (const char* reference : {"", "0a1"}) {
    const auto chosen = choose_job(jobs, reference);
    CHECK(chosen.error().code() == Code::kTimeout);
    CHECK(chosen.error().message().find("job 0a1b2c3d does not answer; is its hvdrun stopped") == 0);
  }
  CHECK(choose_job(jobs, "night").error().message().find("those that do:\n  0a1b2c3d  does not answer, since ") !=
        std::string::npos);
}

TEST_CASE("a folder that others can enter is refused, and the error says so") {
  const Place place;
  REQUIRE(::chmod(place.path.c_str(), 0755) == 0);
  CHECK(LiveFolder(place.path).make().error().message().find("not a folder that belongs to you alone") !=
        std::string::npos);
  CHECK_FALSE(running_jobs(LiveFolder(place.path)).ok());
}

TEST_CASE(
    "jobs of cron are found from a login, and jobs of a login from cron, and a place of the user's own is apart") {
  const Place place;
  const std::string login = "/run/user/" + std::to_string(::geteuid());
  CHECK(LiveFolder::others_of({"XDG_RUNTIME_DIR=" + place.path}).empty());
  const auto from_cron = LiveFolder::others_of({});
  REQUIRE(from_cron.size() == 1);
  CHECK(from_cron.front().path() == login + "/hvdrun");
  if (::access(login.c_str(), W_OK) == 0) {
    const auto from_login = LiveFolder::others_of({"XDG_RUNTIME_DIR=" + login});
    REQUIRE(from_login.size() == 1);
    CHECK(from_login.front().path() == LiveFolder::of({}).path());
  }
}

TEST_CASE("the folder follows XDG_RUNTIME_DIR, unless a socket's path would be too long") {
  const Place place;
  CHECK(LiveFolder::of({"XDG_RUNTIME_DIR=" + place.path}).path() == place.path + "/hvdrun");
  const std::string own = LiveFolder::of({}).path();
  CHECK(own.find("/tmp/hvdrun-") == 0);
  CHECK(LiveFolder::of({"XDG_RUNTIME_DIR=relative"}).path() == own);
  CHECK(LiveFolder::of({"XDG_RUNTIME_DIR=/" + std::string(100, 'x')}).path() == own);
}

}  // namespace hvd::launch::live_test

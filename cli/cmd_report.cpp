// hvdrun report: the page of a submitted job, as a file, or with those of all jobs in a browser.
#include <signal.h>
#include <sys/random.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/options/job_settings.h"
#include "cli/service_commands.h"
#include "cli/service_place.h"
#include "launcher/http/http_server.h"
#include "launcher/job/text_file.h"
#include "launcher/portal/portal.h"
#include "launcher/portal/portal_page.h"
#include "launcher/process/child.h"
#include "launcher/process/inherited_signals.h"
#include "launcher/process/own_process.h"
#include "runtime/base/clock.h"
#include "runtime/base/replace_file.h"
#include "runtime/base/text.h"
#include "runtime/io/event_loop.h"
#include "runtime/io/socket.h"

namespace hvd::cli {
namespace {

using namespace hvd::launch;  // NOLINT(google-build-using-namespace): this file is the launcher's front

constexpr auto kLook = std::chrono::seconds(1);
constexpr std::int64_t kListedEnded = 100;
constexpr std::size_t kTokenBytes = 16;
constexpr std::size_t kMostPage = std::size_t{256} << 20U;

Result<std::filesystem::path> find_page(const ServicePlace& place, const JobRecord& job) {
  std::error_code failed;
  const std::string path = place.dir.page_of(job.uuid);
  std::filesystem::path page = std::filesystem::canonical(path, failed);
  if (failed) {
    const std::string why = !has_ended(job.state)
                                ? " before its ranks begin; it is " + std::string(state_name(job.state))
                            : job.started_ms == 0 ? ": it ended while it waited for its nodes"
                                                  : ": " + path + ": " + failed.message();
    return Error(Code::kNotFound, "job " + job.name + " has no page" + why);
  }
  return page;
}

Result<std::string> read_page(const std::filesystem::path& page) {
  return read_text_file(page.string(), "the page", kMostPage);
}

Result<std::string> make_token() {
  std::array<std::uint8_t, kTokenBytes> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    return Error::from_errno("getrandom");
  }
  return hex(bytes);
}

// Reads "127.0.0.1:8080", "[::1]:8080" or "8080". Only this machine may be reached: the token is in the address, which
// would travel in clear.
Result<SocketAddress> parse_place(const std::string& text) {
  if (text.empty()) {
    return SocketAddress::make("127.0.0.1", 0);
  }
  const bool is_port = text.find_first_not_of("0123456789") == std::string::npos;
  auto address = SocketAddress::parse(is_port ? "127.0.0.1:" + text : text);
  if (!address.ok()) {
    return Error(Code::kInvalid, "report --serve '" + shown_text(text) + "': expected ADDRESS:PORT, as 127.0.0.1:8080");
  }
  const std::string ip = address.value().ip();
  if (!ip.starts_with("127.") && ip != "::1") {
    return Error(Code::kInvalid,
                 "report --serve " + shown_text(text) +
                     ": only a loopback address, as 127.0.0.1; from elsewhere: ssh -L PORT:127.0.0.1:PORT");
  }
  return address;
}

// Recovery runs `hvdrun recover` beside the loop. It writes the records, and so may have to wait for other writers.
class Recovery {
 public:
  explicit Recovery(EventLoop& loop) : loop_(loop) {}

  // Does nothing while one is under way. Of what goes wrong `ps` and `wait` tell.
  void begin() {
    const auto self = own_program();
    if (child_ || !self.ok()) {
      return;
    }
    SpawnOptions program;
    program.argv = {self.value(), "recover"};
    program.environment = own_environment();
    Child::Handlers handlers;
    handlers.on_output = [](Child::Stream, std::string_view) {};
    handlers.on_over = [this](const std::optional<ExitStatus>&, const std::string&) { child_.reset(); };
    if (auto started = Child::start(loop_, std::move(program), Child::Options(), std::move(handlers)); started.ok()) {
      child_ = std::move(started).value();
    }
  }

 private:
  EventLoop& loop_;
  std::unique_ptr<Child> child_;
};

// ServiceJobs gives the portal the jobs of the service.
class ServiceJobs {
 public:
  explicit ServiceJobs(ServicePlace& place) : place_(place) {}

  // Returns the jobs that have not ended, and then those that have; the newest stand first in both parts.
  Result<PortalView> view() {
    PortalView view;
    HVD_TRY_ASSIGN(view.clusters, place_.store.clusters().all());
    HVD_TRY_ASSIGN(view.jobs, place_.store.active_jobs());
    std::reverse(view.jobs.begin(), view.jobs.end());
    HVD_TRY_ASSIGN(std::vector<JobRecord> ended, place_.store.ended_jobs(kListedEnded));
    // As ps knew them last: the engine itself may take a minute to answer.
    HVD_TRY_ASSIGN(const std::vector<JobRecord> of_engines, place_.engine_jobs.all());
    for (const JobRecord& job : of_engines) {
      (has_ended(job.state) ? ended : view.jobs).push_back(job);
    }
    std::stable_sort(ended.begin(), ended.end(),
                     [](const JobRecord& a, const JobRecord& b) { return a.created_ms > b.created_ms; });
    view.jobs.insert(view.jobs.end(), ended.begin(), ended.end());
    HVD_TRY_ASSIGN(const std::int64_t all_ended, place_.store.count_ended());
    view.unlisted = std::max<std::int64_t>(0, all_ended - kListedEnded);
    return view;
  }
  Result<JobRecord> job(std::int64_t number) { return place_.store.job(number); }
  Result<std::string> page(const JobRecord& job) {
    HVD_TRY_ASSIGN(const std::filesystem::path page, find_page(place_, job));
    return read_page(page);
  }
  std::string version(std::int64_t number) {
    const auto job = place_.store.job(number);
    if (!job.ok()) {
      return "gone";
    }
    struct stat status{};
    const bool is_there = ::stat(place_.dir.page_of(job.value().uuid).c_str(), &status) == 0;
    return std::string(state_name(job.value().state)) +
           (is_there ? "-" + std::to_string(status.st_mtim.tv_sec) + "." + std::to_string(status.st_mtim.tv_nsec) : "");
  }
  // True when a job's supervisor has died.
  bool has_orphan() {
    const auto active = place_.store.active_jobs();
    return active.ok() && std::any_of(active.value().begin(), active.value().end(),
                                      [&](const JobRecord& job) { return !is_locked(place_.dir.lock_of(job.uuid)); });
  }

 private:
  ServicePlace& place_;
};

}  // namespace

Result<int> report_job(ServicePlace& place, const ServiceOptions& options) {
  HVD_TRY_ASSIGN(const JobRecord job, place.job(options.job));
  if (!job.engine_job.empty()) {
    return Error(Code::kInvalid, "job " + job.name + " is Slurm's; its page is where --report of its submission says");
  }
  HVD_TRY_ASSIGN(const std::filesystem::path page, find_page(place, job));
  if (job.error.code == kLostError) {
    std::cerr << "hvdrun: job " << job.name
              << " has failed, and its page was last written before that: " << job.error.message << "\n";
  }
  if (options.out.empty()) {
    std::cout << page.string() << "\n";
    return 0;
  }
  HVD_TRY_ASSIGN(std::string text, read_page(page));
  if (job.error.code == kLostError) {
    text = page_of_lost(std::move(text));
  }
  if (options.out == "-") {
    std::cout << text;
    return 0;
  }
  HVD_TRY(replace_file(options.out, text));
  return 0;
}

Result<int> serve_reports(ServicePlace& place, const ServiceOptions& options) {
  HVD_TRY_ASSIGN(const SocketAddress at, parse_place(options.serve_at));
  HVD_TRY_ASSIGN(const std::string token, make_token());
  ::signal(SIGPIPE, SIG_IGN);
  const SteadyClock clock;
  HVD_TRY_ASSIGN(const std::unique_ptr<EventLoop> loop, EventLoop::create(clock));
  HVD_TRY(loop->watch_signals(without_ignored({SIGINT, SIGTERM, SIGHUP}), [&loop](int) { loop->stop(); }));
  // On the loop nobody waits for other processes.
  HVD_TRY_ASSIGN(ServicePlace own_place, ServicePlace::open_at(place.dir.root(), Duration::zero()));
  ServiceJobs jobs(own_place);
  Recovery recovery(*loop);
  PortalSource source;
  source.view = [&jobs] { return jobs.view(); };
  source.job = [&jobs](std::int64_t number) { return jobs.job(number); };
  source.page = [&jobs](const JobRecord& job) { return jobs.page(job); };
  source.version = [&jobs](std::int64_t job) { return jobs.version(job); };
  Portal portal(std::move(source), token);
  HVD_TRY_ASSIGN(const std::unique_ptr<HttpServer> server,
                 HttpServer::at_address(*loop, at.ip(), at.port(),
                                        [&portal](const HttpRequest& request) { return portal.answer(request); }));
  HVD_TRY_ASSIGN(const int port, server->port());
  HVD_TRY_ASSIGN(const SocketAddress own, SocketAddress::make(at.ip(), static_cast<std::uint16_t>(port)));
  std::cout << "http://" << own.text() << "/" << token << "/" << std::endl;
  std::cerr << "hvdrun: this address shows your jobs and clusters to browsers on this machine, until Ctrl-C\n";
  std::function<void()> look = [&] {
    if (jobs.has_orphan()) {  // nobody else may be there to see it
      recovery.begin();
    }
    for (const std::string& topic : portal.news(server->topics())) {
      server->publish(topic, Portal::kNews);
    }
    loop->after(kLook, look);
  };
  look();
  HVD_TRY(loop->run());
  return 0;
}

}  // namespace hvd::cli

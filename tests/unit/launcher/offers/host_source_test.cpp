// launcher/offers/discovery_script and watched_hostfile: what they report of a command and of a file that change.
#include <unistd.h>

#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "launcher/offers/discovery_script.h"
#include "launcher/offers/first_hosts.h"
#include "launcher/offers/watched_hostfile.h"
#include "tests/unit/launcher/folder.h"

namespace hvd::launch::host_source_test {

using namespace std::chrono_literals;

namespace {

struct Watched {
  Watched() : loop(EventLoop::create(clock).value()) {}

  DiscoveryScript::Options script(const std::string& command, Duration longest = 300s) const {
    return {command, {"PATH=/usr/bin:/bin"}, "", 0, 5ms, longest};
  }
  // Runs until so many reports have come, and returns them: "a:2 b:1", or "! why".
  std::vector<std::string> reports(HostSource& source, std::size_t count,
                                   const std::function<void(std::size_t)>& on_report = {}) {
    std::vector<std::string> seen;
    const auto take = [&](std::string text) {
      seen.push_back(std::move(text));
      if (on_report) {
        on_report(seen.size());
      }
      if (seen.size() == count) {
        loop->stop();
      }
    };
    HostSource::Handlers handlers;
    handlers.on_hosts = [&](const HostList& hosts) {
      std::string text;
      for (const HostSpec& host : hosts) {
        text += (text.empty() ? "" : " ") + host.name + ":" + std::to_string(host.slots);
      }
      take(text);
    };
    handlers.on_trouble = [&](const std::string& why) { take("! " + why); };
    source.start(std::move(handlers));
    const TimerId guard = loop->after(300s, [&] { loop->stop(); });
    REQUIRE(loop->run().ok());
    loop->cancel(guard);
    source.stop();
    REQUIRE(seen.size() == count);
    return seen;
  }
  void write(const std::string& text) const {
    std::ofstream(path() + ".new") << text;
    REQUIRE(::rename((path() + ".new").c_str(), path().c_str()) == 0);
  }
  [[nodiscard]] std::string path() const { return folder.path + "/hosts"; }

  SteadyClock clock;
  std::unique_ptr<EventLoop> loop;
  hvd::test::Folder folder;
};

}  // namespace

TEST_CASE("a script's hosts are reported when they change, and what is wrong once") {
  Watched watched;
  watched.write("a:2\n");
  DiscoveryScript script(*watched.loop, watched.script("cat " + watched.path()));
  const auto reports = watched.reports(script, 5, [&](std::size_t number) {
    const std::vector<std::string> next = {"a:2\nb:1\n", "what is this\n", "b:1\n", ""};
    if (number <= next.size()) {
      watched.write(next[number - 1]);
    }
  });
  CHECK(reports[0] == "a:2");
  CHECK(reports[1] == "a:2 b:1");
  CHECK(reports[2].starts_with("! the host discovery script says no slots of what is this"));
  CHECK(reports[2].ends_with("; the hosts stay as they are"));
  CHECK(reports[3] == "b:1");
  CHECK(reports[4] == "");
}

TEST_CASE("a script that fails, hangs or prints without end is named, and runs again") {
  Watched watched;
  DiscoveryScript fails(*watched.loop, watched.script("echo no token >&2; exit 3"));
  CHECK(watched.reports(fails, 1)[0] ==
        "! the host discovery script exited with code 3: no token; the hosts stay as they are");
  const std::string once = "test -e " + watched.path() + " && echo a:1 && exit; touch " + watched.path() + "; ";
  DiscoveryScript hangs(*watched.loop, watched.script(once + "sleep 1000", 3s));
  const auto reports = watched.reports(hangs, 2);
  CHECK(reports[0] ==
        "! the host discovery script has not ended within 3 s, and was killed; the hosts stay as they are");
  CHECK(reports[1] == "a:1");
  DiscoveryScript floods(*watched.loop, watched.script("head -c 3000000 /dev/zero"));
  CHECK(watched.reports(floods, 1)[0] ==
        "! the host discovery script prints more than 1 MiB; the hosts stay as they are");
}

TEST_CASE("a script that leaves a process behind with its output does not stop the next look") {
  Watched watched;
  DiscoveryScript script(*watched.loop, watched.script("sleep 5 & echo a:1"));
  CHECK(watched.reports(script, 1)[0] == "a:1");
}

TEST_CASE("a host file is read again when it was written or replaced") {
  Watched watched;
  watched.write("a slots=2\n");
  WatchedHostfile file(*watched.loop, watched.path(), 0, 5ms);
  const auto reports = watched.reports(file, 4, [&](std::size_t number) {
    if (number == 1) {
      watched.write("a slots=2\nb slots=1\n");
    } else if (number == 2) {
      REQUIRE(::unlink(watched.path().c_str()) == 0);
    } else if (number == 3) {
      watched.write("b slots=1\n");
    }
  });
  CHECK(reports[0] == "a:2");
  CHECK(reports[1] == "a:2 b:1");
  CHECK(reports[2].find(watched.path()) != std::string::npos);
  CHECK(reports[3] == "b:1");
}

TEST_CASE("a job begins when its hosts have slots enough, and a script that never works is an error at once") {
  Watched watched;
  const std::string grows = "echo x >> " + watched.path() + "; echo a:$(wc -l < " + watched.path() + ")";
  DiscoveryScript script(*watched.loop, watched.script(grows));
  std::vector<std::string> said;
  const auto hosts =
      await_first_hosts(*watched.loop, script, 3, 60s, [&](const std::string& line) { said.push_back(line); });
  REQUIRE(hosts.ok());
  CHECK(hosts.value().front().slots == 3);
  CHECK(said.front() == "the hosts have 1 slot of the 3 that the job needs to begin; waiting for more");
  DiscoveryScript twice(*watched.loop, watched.script("echo a:1; echo b:1; echo a:4"));
  said.clear();
  const auto named =
      await_first_hosts(*watched.loop, twice, 2, 60s, [&](const std::string& line) { said.push_back(line); });
  REQUIRE_MESSAGE(named.ok(), named.error().message());
  CHECK(named.value().size() == 2);
  CHECK(said == std::vector<std::string>{"the host discovery script names a twice; the first line counts"});
  DiscoveryScript broken(*watched.loop, watched.script("echo; echo no quota; echo see the log; exit 1"));
  CHECK(await_first_hosts(*watched.loop, broken, 1, 60s, [](const std::string&) {}).error().message() ==
        "the host discovery script exited with code 1: no quota; so there is no host to begin on");
  WatchedHostfile missing(*watched.loop, watched.path() + ".no", 0, 5ms);
  CHECK(await_first_hosts(*watched.loop, missing, 1, 60s, [](const std::string&) {})
            .error()
            .message()
            .ends_with("; so there is no host to begin on"));
  DiscoveryScript small(*watched.loop, watched.script("echo a:1"));
  const auto late = await_first_hosts(*watched.loop, small, 2, 50ms, [](const std::string&) {});
  REQUIRE_FALSE(late.ok());
  CHECK(late.error().code() == Code::kTimeout);
}

}  // namespace hvd::launch::host_source_test

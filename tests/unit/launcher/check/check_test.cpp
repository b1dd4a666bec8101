// launcher/check and what launcher/report says of it: from what agents tell to tables, findings and an exit code.
#include <algorithm>
#include <map>
#include <set>
#include <string>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "launcher/check/clock_offset.h"
#include "launcher/check/findings.h"
#include "launcher/check/link_check.h"
#include "launcher/check/link_plan.h"
#include "launcher/job/host_list.h"
#include "launcher/report/check_json.h"
#include "launcher/report/check_text.h"
#include "launcher/report/quantities.h"
#include "launcher/report/text_grid.h"
#include "launcher/state/exit_codes.h"
#include "runtime/io/socket.h"

namespace hvd::launch::check_test {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::uint64_t kGiB = std::uint64_t{1} << 30U;

Placement placed(const std::string& hosts) {
  return place(parse_host_list(hosts).value(), 0).value();
}

SystemSurvey good_system(int number) {
  SystemSurvey system;
  system.system = "Debian GNU/Linux 12";
  system.kernel = "Linux 6.1.0";
  system.machine = "x86_64";
  system.agent_path = "/root/.cache/hvdrun/agent-0123456789abcdef";
  system.processors = 8;
  system.memory = 64 * kGiB;
  system.memory_free = 60 * kGiB;
  system.memory_limit = kUnlimited;
  system.open_files = system.open_files_most = 65536;
  system.locked_memory = kUnlimited;
  system.processes = 30000;
  system.first_port = 32768;
  system.last_port = 60999;
  system.shared = system.shared_free = 32 * kGiB;
  system.interfaces = {{"eth0", {"10.0.0." + std::to_string(number) + "/24"}, 1500, 10000}};
  return system;
}

SoftwareSurvey good_software() {
  SoftwareSurvey software;
  software.cache = {"/root/.cache", "", 100 * kGiB};
  software.temporary = {"/tmp", "", 100 * kGiB};
  software.directory = {"/work", "", 100 * kGiB};
  software.program = "/usr/bin/python3";
  software.python = "3.11.2";
  software.torch = "2.4.0";
  return software;
}

// Hosts n1, n2 ... on which all is well, and all links between them.
CheckResult good(int hosts) {
  CheckResult result;
  std::string list;
  for (int i = 1; i <= hosts; ++i) {
    list += (i == 1 ? "n" : ",n") + std::to_string(i);
  }
  const Placement placement = placed(list);
  for (const NodePlan& plan : placement.nodes) {
    CheckedHost host;
    host.plan = plan;
    host.transport = "ssh";
    host.reach_time = std::chrono::milliseconds(310);
    host.ready = ReadyMessage{};
    host.ready->version = "0.1.0";
    host.clock = ClockOffset{std::chrono::milliseconds(2), std::chrono::microseconds(100), {}};
    host.system = good_system(plan.index + 1);
    host.software = good_software();
    host.address = "10.0.0." + std::to_string(plan.index + 1);
    result.hosts.push_back(std::move(host));
  }
  for (int a = 0; a < hosts; ++a) {
    for (int b = 0; b < hosts; ++b) {
      if (a != b) {
        result.links.push_back({a, b, true, ProbeStage::kDone, "", std::chrono::microseconds(50), 1.1e9});
      }
    }
  }
  result.took = std::chrono::milliseconds(1200);
  return result;
}

CheckedLink& link_of(CheckResult& result, int from, int to) {
  return *std::find_if(result.links.begin(), result.links.end(),
                       [&](const CheckedLink& link) { return link.from == from && link.to == to; });
}

std::string all_text(const CheckResult& result, std::size_t width, bool color = false) {
  std::string text;
  for (const std::string& line : check_text(result, find_problems(result), {width, color, false})) {
    text += line + "\n";
  }
  return text;
}

// The findings on a subject; all are warnings, or all are problems.
std::vector<Finding> about(const CheckResult& result, Subject subject) {
  std::vector<Finding> found;
  for (const Finding& finding : find_problems(result)) {
    if (finding.subject == subject) {
      found.push_back(finding);
    }
  }
  return found;
}

}  // namespace

TEST_CASE("a clock's offset is what NTP makes of one question") {
  // Asked at 100, answered at 110.5, known at 101: half of the second was the way there, so the clock is 10 ahead.
  const ClockOffset offset = clock_offset({{100 * kSecond, 110 * kSecond + kSecond / 2, 101 * kSecond}});
  CHECK(offset.offset == std::chrono::seconds(10));
  CHECK(offset.uncertainty == std::chrono::milliseconds(500));
  CHECK(offset.round_trip == std::chrono::seconds(1));
}

TEST_CASE("a clock may be behind, and of several questions the shortest counts") {
  const std::vector<ClockSample> samples = {
      {0, 5 * kSecond, 8 * kSecond}, {10 * kSecond, 7 * kSecond, 10 * kSecond + 2000}, {20 * kSecond, 0, 21 * kSecond}};
  const ClockOffset offset = clock_offset(samples);
  CHECK(offset.offset == Duration(-3 * kSecond - 1000));
  CHECK(offset.uncertainty == Duration(1000));
}

TEST_CASE("of no usable question nothing is known of a clock") {
  CHECK(clock_offset({}).uncertainty == Duration::max());
  CHECK(clock_offset({{5, 5, 4}}).uncertainty == Duration::max());  // our own clock was set back meanwhile
}

TEST_CASE("every pair meets once, and no host is in two pairs of a round") {
  for (int hosts = 0; hosts <= kMostHostsForAllPairs; ++hosts) {
    std::set<std::pair<int, int>> met;
    const auto rounds = plan_links(hosts);
    for (const LinkRound& round : rounds) {
      std::set<int> busy;
      for (const auto& [a, b] : round) {
        CHECK(a < b);
        CHECK(busy.insert(a).second);
        CHECK(busy.insert(b).second);
        CHECK(met.insert({a, b}).second);
      }
    }
    CHECK(met.size() == static_cast<std::size_t>(std::max(0, hosts * (hosts - 1) / 2)));
    CHECK(rounds.size() <= static_cast<std::size_t>(std::max(0, hosts)));
  }
}

TEST_CASE("many hosts are measured in a ring") {
  for (const int hosts : {17, 18, 101, 1000}) {
    std::map<int, int> count;
    const auto rounds = plan_links(hosts);
    CHECK(rounds.size() <= 3);
    for (const LinkRound& round : rounds) {
      std::set<int> busy;
      for (const auto& [a, b] : round) {
        CHECK(b == (a + 1) % hosts);
        CHECK(busy.insert(a).second);
        CHECK(busy.insert(b).second);
        ++count[a];
      }
    }
    CHECK(count.size() == static_cast<std::size_t>(hosts));
  }
}

TEST_CASE("names that differ in a number are written as one") {
  const auto names = [](const std::string& list) {
    CheckResult result;
    std::vector<int> hosts;
    const Placement placement = placed(list);
    for (const NodePlan& plan : placement.nodes) {
      CheckedHost host;
      host.plan = plan;
      result.hosts.push_back(host);
      hosts.push_back(plan.index);
    }
    return host_names(result, hosts);
  };
  CHECK(names("a") == "a");
  CHECK(names("n1,n2,n3") == "n1, n2, n3");
  CHECK(names("n1,n2,n3,n4,n7") == "n[1-4,7]");
  CHECK(names("n08,n09,n10,n12,login") == "n[08-10,12], login");
  CHECK(names("n9,n10,n11,n12") == "n[9-12]");
  CHECK(names("n1.lan,n2.lan,n3.lan,n4.lan") == "n[1-4].lan");
  CHECK(names("10.0.0.1,10.0.0.2,10.0.0.3,10.0.0.4") == "10.0.0.1, 10.0.0.2, 10.0.0.3, 10.0.0.4");
}

TEST_CASE("of hosts on which all is well nothing is said, and a job could start") {
  for (const int hosts : {1, 2, 5}) {
    const CheckResult result = good(hosts);
    CHECK(find_problems(result).empty());
    CHECK(exit_code_of(result, find_problems(result)) == 0);
  }
}

TEST_CASE("hosts that cannot be reached are problems, each of its own, and the others' are told too") {
  CheckResult result = good(4);
  for (const int lost : {1, 3}) {
    CheckedHost& host = result.hosts[static_cast<std::size_t>(lost)];
    host.error = Error(Code::kUnreachable, lost == 1 ? "n2: refused" : "timed out");
    host.ready.reset();
    host.system.reset();
    host.software.reset();
    host.clock.reset();
  }
  result.links.clear();
  result.hosts[0].system->open_files = 100;
  const auto findings = find_problems(result);
  REQUIRE(findings.size() == 3);
  CHECK(findings[0].what == "n2: refused");
  CHECK(findings[1].what == "n4: timed out");
  CHECK(findings[2].subject == Subject::kLimits);
  CHECK(exit_code_of(result, findings) == 241);
}

TEST_CASE("a host whose agent was lost meanwhile is told by its own code") {
  CheckResult result = good(2);
  result.hosts[1].error = Error(Code::kLostPeer, "gone");
  result.links.clear();
  CHECK(exit_code_of(result, find_problems(result)) == 243);
}

TEST_CASE("what is under a limit is warned of, and does not keep a job from starting") {
  struct Row {
    Subject subject;
    void (*spoil)(CheckedHost& host);
  };
  const std::vector<Row> rows = {
      {Subject::kClock, [](CheckedHost& h) { h.clock->offset = std::chrono::milliseconds(-2200); }},
      {Subject::kProcessors, [](CheckedHost& h) { h.system->processor_limit = 0.5; }},
      {Subject::kProcessors, [](CheckedHost& h) { h.system->processors = 0; }},
      {Subject::kMemory, [](CheckedHost& h) { h.system->memory_limit = 1 << 20; }},
      {Subject::kMemory, [](CheckedHost& h) { h.system->memory_free = 0; }},
      {Subject::kAddress, [](CheckedHost& h) { h.system->own_name_address = "127.0.1.1"; }},
      {Subject::kMtu, [](CheckedHost& h) { h.system->interfaces[0].mtu = 9000; }},
      {Subject::kInterfaceSpeed, [](CheckedHost& h) { h.system->interfaces[0].speed_mbit = 1000; }},
      {Subject::kPorts, [](CheckedHost& h) { h.system->used_ports = 28000; }},
      {Subject::kLimits, [](CheckedHost& h) { h.system->open_files = 1023; }},
      {Subject::kLimits, [](CheckedHost& h) { h.system->processes = 50; }},
      {Subject::kSpace, [](CheckedHost& h) { h.system->shared_free = 1 << 20; }},
      {Subject::kSpace, [](CheckedHost& h) { h.system->shared = h.system->shared_free = 0; }},
      {Subject::kSpace, [](CheckedHost& h) { h.software->temporary.free = 0; }},
      {Subject::kSpace, [](CheckedHost& h) { h.software->cache.error = "no"; }},
      {Subject::kProgram, [](CheckedHost& h) { h.software->torch = ""; }},
      {Subject::kProgram, [](CheckedHost& h) { h.software->python = "3.9.2"; }},
      {Subject::kProgram, [](CheckedHost& h) { h.software->program_error = "no 'python' in PATH"; }},
      {Subject::kSystem, [](CheckedHost& h) { h.system->machine = "aarch64"; }},
      {Subject::kGpus, [](CheckedHost& h) { h.ready->gpus = {"GPU-a"}; }},
      {Subject::kAgent, [](CheckedHost& h) { h.ready->version = "0.0.9"; }},
      {Subject::kAnswer, [](CheckedHost& h) { h.software->error = "no answer within 30 s"; }},
      {Subject::kAnswer, [](CheckedHost& h) { h.clock.reset(); }},
  };
  for (const Row& row : rows) {
    CAPTURE(name_of(row.subject));
    CheckResult result = good(3);
    row.spoil(result.hosts[1]);
    const auto findings = find_problems(result);
    REQUIRE(findings.size() == 1);
    CHECK(findings[0].subject == row.subject);
    CHECK(!findings[0].is_problem);
    CHECK(findings[0].hosts == std::vector<int>{1});
    CHECK(!findings[0].advice.empty());
    CHECK(exit_code_of(result, findings) == 0);
    CHECK(all_text(result, 100).find("warning  ") != std::string::npos);
  }
}

TEST_CASE("more ranks than GPUs are told of as --gpus has them use these") {
  CheckResult result = good(2);
  for (CheckedHost& host : result.hosts) {
    host.ready->gpus = {"GPU-a"};
    host.plan.ranks.push_back(host.plan.ranks.front());
  }
  CHECK(all_text(result, 1000).find("--gpus one lets them share") != std::string::npos);
  result.gpus = GpuMode::kOne;
  CHECK(all_text(result, 1000).find("share GPU-a") != std::string::npos);
  CHECK(all_text(result, 1000).find("--gpus one lets them share") == std::string::npos);
  result.gpus = GpuMode::kNone;
  CHECK(find_problems(result).empty());
}

TEST_CASE("what would keep a job from starting has the code with which it would have ended") {
  struct Row {
    int exit_code;
    void (*spoil)(CheckResult& result);
  };
  const std::vector<Row> rows = {
      {242, [](CheckResult& r) { r.hosts[1].system->listen_error = "no"; }},
      {242, [](CheckResult& r) { r.hosts[1].plan.host.gpus = {3}; }},
      {127, [](CheckResult& r) { r.hosts[1].software->directory.error = "no"; }},
      {127,
       [](CheckResult& r) {
         r.names_program = true;
         r.hosts[1].software->program_error = "no";
       }},
      {127, [](CheckResult& r) { r.hosts[1].software->script_error = "no"; }},
      {127, [](CheckResult& r) { r.not_in_folder = "train.py"; }},
      {241, [](CheckResult& r) { r.hosts[1].address = "127.0.0.1"; }},
      {242,
       [](CheckResult& r) {
         r.wants_mpirun = true;
         r.hosts[1].software->mpirun_error = "no";
       }},
      {241, [](CheckResult& r) { link_of(r, 0, 1).error = "timed out"; }},
      {130, [](CheckResult& r) { r.interrupted_by = 2; }},
  };
  for (const Row& row : rows) {
    CAPTURE(row.exit_code);
    CheckResult result = good(3);
    row.spoil(result);
    CHECK(exit_code_of(result, find_problems(result)) == row.exit_code);
  }
}

TEST_CASE("that mpirun carries the secret of the call in clear text is told of hosts elsewhere, and of no others") {
  CheckResult result = good(2);
  for (CheckedHost& host : result.hosts) {
    host.software->mpirun = "Open MPI 4.1.4";
  }
  CHECK(find_problems(result).empty());
  result.wants_mpirun = true;
  result.hosts[0].opened.is_local = true;
  const auto findings = find_problems(result);
  REQUIRE(findings.size() == 1);
  CHECK(findings[0].subject == Subject::kMpirun);
  CHECK(!findings[0].is_problem);
  CHECK(findings[0].hosts == std::vector<int>{1});
  CHECK(findings[0].what.find("mpirun sends the secret of hvdrun's call to ") == 0);
  CHECK(exit_code_of(result, findings) == 0);
}

TEST_CASE("a clock within its uncertainty is not called wrong") {
  CheckResult result = good(2);
  result.hosts[1].clock = ClockOffset{std::chrono::seconds(3), std::chrono::milliseconds(1500), {}};
  CHECK(find_problems(result).empty());
}

TEST_CASE("a host that none can reach is one finding, that names from where") {
  CheckResult result = good(5);
  for (int from = 0; from < 4; ++from) {
    CheckedLink& link = link_of(result, from, 4);
    link.error = "connect to 10.0.0.5:40000 timed out";
    link.stage = ProbeStage::kConnect;
  }
  const auto findings = find_problems(result);
  REQUIRE(findings.size() == 1);
  CHECK(findings[0].what == "n[1-4] cannot reach n5 at 10.0.0.5: connect to 10.0.0.5:40000 timed out");
  CHECK(findings[0].advice.find("firewall") != std::string::npos);
  link_of(result, 0, 4).stage = ProbeStage::kStream;
  CHECK(about(result, Subject::kLink).size() == 2);
  CHECK(about(result, Subject::kLink)[1].advice.find("MTU") != std::string::npos);
}

TEST_CASE("two hosts that cannot reach each other are one finding") {
  CheckResult result = good(3);
  link_of(result, 0, 2).error = "timed out";
  link_of(result, 2, 0).error = "refused";
  auto findings = find_problems(result);
  REQUIRE(findings.size() == 1);
  CHECK(findings[0].what == "n3 and n1 cannot reach each other: refused; timed out");
  CHECK(findings[0].hosts == std::vector<int>{2, 0});
  link_of(result, 1, 2).error = "timed out";
  CHECK(find_problems(result).size() == 2);
}

TEST_CASE("a link that is much slower than the others is told, and noise is not") {
  CheckResult result = good(4);
  link_of(result, 0, 1).round_trip = std::chrono::microseconds(700);  // much, but not long
  link_of(result, 1, 2).bytes_per_second = 0.5e9;
  CHECK(find_problems(result).empty());
  link_of(result, 0, 1).round_trip = std::chrono::milliseconds(30);
  link_of(result, 1, 2).bytes_per_second = 0.1e9;
  const auto slow = about(result, Subject::kSpeed);
  REQUIRE(slow.size() == 1);
  CHECK(slow[0].what ==
        "much slower than the other links: n1 to n2 (a round trip takes 30 ms), n2 to n3 (100 MB/s go through)");
  CHECK(slow[0].hosts == std::vector<int>{0, 1, 2});
  CHECK(exit_code_of(result, slow) == 0);
}

TEST_CASE("packages that differ are named, the first of them, with the hosts") {
  CheckResult result = good(3);
  for (CheckedHost& host : result.hosts) {
    host.software->packages = {{"attrs", "23.1.0"}, {"horovod", "0.1.0"}, {"numpy", "1.26.4"}};
  }
  CHECK(about(result, Subject::kProgram).empty());
  result.hosts[2].software->packages = {
      {"attrs", "23.1.0"}, {"horovod", "0.2.0"}, {"numpy", "2.0.1"}, {"pandas", "2.2"}};
  const auto different = about(result, Subject::kProgram);
  REQUIRE(different.size() == 1);
  CHECK(different[0].what ==
        "Python packages are not the same on all hosts: numpy 1.26.4 on n1, n2, 2.0.1 on n3; pandas 2.2 on n3, not on "
        "all");
  for (int number = 0; number < 9; ++number) {
    result.hosts[0].software->packages.emplace_back("p" + std::to_string(number), "1");
  }
  CHECK(about(result, Subject::kProgram)[0].what.ends_with("p4 1 on n1, not on all; and 5 more, which --json lists"));
}

TEST_CASE("links that were not tried are counted") {
  CheckResult result = good(3);
  link_of(result, 0, 1).was_tried = false;
  const auto untried = about(result, Subject::kLink);
  REQUIRE(untried.size() == 1);
  CHECK(!untried[0].is_problem);
  CHECK(untried[0].what.find("1 of 6") != std::string::npos);
}

TEST_CASE("the text of a healthy check, word for word") {
  CheckResult result = good(2);
  result.hosts[1].software->torch = "2.3.0";
  CHECK(all_text(result, 100) ==
        R"(host  way   after  clock  slots  cpus       free memory  gpus  address    mtu  speed  interface
n1    ssh  0.31 s  +2 ms      1     8  60 GiB of 64 GiB     0  10.0.0.1  1500    10G  eth0
n2    ssh  0.31 s  +2 ms      1     8  60 GiB of 64 GiB     0  10.0.0.2  1500    10G  eth0

agent      0.1.0 (01234567), reached by ssh
system     Debian GNU/Linux 12, Linux 6.1.0, x86_64
Python     n1: 3.11.2, torch 2.4.0, horovod none, /usr/bin/python3
           n2: 3.11.2, torch 2.3.0, horovod none, /usr/bin/python3!
limits     65536 open files, 30000 processes, unlimited locked memory
TCP ports  32768 to 60999, nearly all of them free
space      /dev/shm 32 GiB; free: cache 100 GiB, /tmp 100 GiB

round trip, us    to n1  to n2
from n1               -     50
from n2              50      -

one stream, GB/s  to n1  to n2
from n1               -    1.1
from n2             1.1      -

warning  PyTorch is not the same on all hosts: 2.3.0 on n2; 2.4.0 on n1
         try: use one environment on all hosts: a shared file system, an image, or the same pins

2 hosts checked in 1.20 s: a job could start, 1 warning
)");
}

TEST_CASE("no line is wider than the terminal, whatever its width, and colours change no letter") {
  for (const int hosts : {1, 3, 16, 40}) {
    CheckResult result = good(hosts);
    result.has_all_pairs = hosts <= kMostHostsForAllPairs;
    result.hosts[0].error = Error(Code::kUnreachable, "n1: " + std::string(30, 'x') + " " + std::string(30, 'y'));
    for (const std::size_t width : {80U, 100U, 120U}) {
      const auto findings = find_problems(result);
      std::string plain;
      for (const std::string& line : check_text(result, findings, {width, false, false})) {
        CHECK(width_of(line) <= width);
        CHECK((line.empty() || line.back() != ' '));
        plain += line + "\n";
      }
      std::string colored = all_text(result, width, true);
      CHECK(colored != plain);
      for (std::size_t at = colored.find('\x1b'); at != std::string::npos; at = colored.find('\x1b')) {
        colored.erase(at, colored.find('m', at) - at + 1);
      }
      CHECK(colored == plain);
    }
  }
}

TEST_CASE("what a host says of itself cannot command the terminal, nor break the JSON") {
  CheckResult result = good(2);
  result.hosts[0].system->system =
      "evil\x1b[2J\n\xc2\x9b"
      "31m\xff";
  result.hosts[0].notices = {"a\rb\x07"};
  result.hosts[1].error = Error(Code::kUnreachable, "\x1b]0;title\x07");
  result.hosts[1].software->torch = "\x1b[31m";
  for (const bool color : {false, true}) {
    const std::string text = all_text(result, 80, color);
    CHECK(text.find("\x1b[2J") == std::string::npos);
    CHECK(text.find("\x1b]") == std::string::npos);
    CHECK(text.find('\r') == std::string::npos);
    CHECK(text.find('\x07') == std::string::npos);
    CHECK(text.find("\xc2\x9b") == std::string::npos);
  }
  const auto json = nlohmann::json::parse(check_json(result, find_problems(result)));
  CHECK(json["hosts"][0]["system"].get<std::string>().rfind("evil", 0) == 0);
}

TEST_CASE("the JSON has what programs need, and null for what is not known") {
  CheckResult result = good(3);
  result.hosts[2].error = Error(Code::kUnreachable, "n3: refused");
  result.hosts[2].ready.reset();
  link_of(result, 0, 1).error = "timed out";
  const auto findings = find_problems(result);
  const auto json = nlohmann::json::parse(check_json(result, findings));
  CHECK(json["can_start"] == false);
  CHECK(json["exit_code"] == 241);
  CHECK(json["hosts"][0]["limits"]["locked_memory_bytes"].is_null());
  CHECK(json["hosts"][0]["clock_offset_seconds"] == 0.002);
  CHECK(json["hosts"][2]["reached"] == false);
  CHECK(json["hosts"][2]["error"] == "n3: refused");
  CHECK(json["links"][0]["error"] == "timed out");
  CHECK(json["links"].size() == 6);
  CHECK(json["findings"][0]["subject"] == "reach");
  CHECK(json["findings"][0]["hosts"] == nlohmann::json{"n3"});
  // A host that was reached and did not tell all in time has the same names.
  result.hosts[1].system.reset();
  result.hosts[1].software.reset();
  const auto silent = nlohmann::json::parse(check_json(result, findings))["hosts"][1];
  for (const auto& told : json["hosts"][0].items()) {
    CHECK_MESSAGE(silent.contains(told.key()), told.key());
  }
  CHECK(silent["memory_bytes"].is_null());
}

TEST_CASE("a host that was reached and cannot take part has the code of a start that fails") {
  CheckResult result = good(2);
  result.hosts[1].error = Error(Code::kResource, "n2 has no interface 'ib0'");
  const auto findings = find_problems(result);
  REQUIRE_FALSE(findings.empty());
  CHECK(findings.front().exit_code == exit_code::kStartFailed);
}

TEST_CASE("quantities as people read them") {
  CHECK(bytes_text(0) == "0 B");
  CHECK(bytes_text(1023) == "1.0 KiB");
  CHECK(bytes_text(64U << 20U) == "64 MiB");
  CHECK(bytes_text(7'600'000'000) == "7.1 GiB");
  CHECK(bytes_text(UINT64_MAX) == "16384 PiB");
  CHECK(offset_text(Duration::zero()) == "0 ms");
  CHECK(offset_text(std::chrono::milliseconds(-3100)) == "-3.1 s");
  CHECK(offset_text(std::chrono::minutes(125)) == "+2 h 5 min");
  CHECK(offset_text(-std::chrono::minutes(5)) == "-5 min");
  CHECK(speed_text(100) == "100M");
  CHECK(speed_text(2500) == "2.5G");
  CHECK(speed_text(200000) == "200G");
}

}  // namespace hvd::launch::check_test

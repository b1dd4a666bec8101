#include "tests/fuzz/check_targets.h"

#include <iterator>
#include <string>

#include <nlohmann/json.hpp>

#include "launcher/check/findings.h"
#include "launcher/job/host_list.h"
#include "launcher/report/check_json.h"
#include "launcher/report/check_text.h"
#include "launcher/survey/own_software.h"
#include "launcher/survey/own_system.h"
#include "launcher/survey/python_survey.h"
#include "launcher/wire/check_messages.h"
#include "tests/fuzz/require.h"

namespace hvd::fuzz {
namespace {

namespace launch = hvd::launch;

// Two hosts of which one is as `system` and `software` say.
void report_on(const launch::SystemSurvey& system, const launch::SoftwareSurvey& software) {
  launch::CheckResult result;
  const launch::Placement placement = launch::place(launch::parse_host_list("a,b:2").value(), 0).value();
  for (const launch::NodePlan& plan : placement.nodes) {
    launch::CheckedHost host;
    host.plan = plan;
    host.transport = "ssh";
    host.ready = launch::ReadyMessage{};
    host.ready->version = software.horovod;
    host.ready->gpus.assign(software.gpus.size() % 4, software.driver);
    host.clock = launch::ClockOffset{};
    host.system = plan.index == 0 ? system : launch::SystemSurvey();
    host.software = plan.index == 1 ? software : launch::SoftwareSurvey();
    host.address = system.interfaces.empty() || system.interfaces[0].addresses.empty()
                       ? system.own_name_address
                       : system.interfaces[0].addresses[0].substr(0, system.interfaces[0].addresses[0].find('/'));
    result.hosts.push_back(std::move(host));
  }
  result.links.push_back({0, 1, true, launch::ProbeStage::kPing, system.listen_error, {}, 0});
  const auto findings = launch::find_problems(result);
  for (const std::string& line : launch::check_text(result, findings, {80, false, false})) {
    for (const char c : line) {
      require(static_cast<unsigned char>(c) >= 0x20 && c != 0x7f, "what a host says commands no terminal");
    }
    require(line.empty() || line.back() != ' ', "no line ends in a space");
  }
  require(nlohmann::json::accept(launch::check_json(result, findings)), "the JSON is JSON");
}

void system_survey(std::string_view body) {
  one_message<launch::SystemSurvey>(body);
  if (const auto system = launch::SystemSurvey::decode(body); system.ok()) {
    report_on(system.value(), {});
  }
}

void software_survey(std::string_view body) {
  one_message<launch::SoftwareSurvey>(body);
  if (const auto software = launch::SoftwareSurvey::decode(body); software.ok()) {
    report_on({}, software.value());
  }
}

}  // namespace

void check_messages(std::string_view input) {
  static constexpr void (*kDecoders[])(std::string_view) = {
      one_message<launch::ClockMessage>,
      one_message<launch::SurveyRequest>,
      system_survey,
      software_survey,
      one_message<launch::ProbeRequest>,
      one_message<launch::ListeningMessage>,
      one_message<launch::ProbeResult>,
  };
  if (!input.empty()) {
    kDecoders[static_cast<unsigned char>(input.front()) % std::size(kDecoders)](input.substr(1));
  }
}

void node_words(std::string_view input) {
  launch::SoftwareSurvey software;
  launch::read_python_answer(input, software);
  require(software.python.empty() == !software.python_error.empty(), "Python has a version, or an error");
  launch::read_gpu_answer(input, software);
  require(launch::mpirun_version(input).find('\n') == std::string::npos, "a version is one line");
  require(launch::pretty_name(input).find('\n') == std::string::npos, "a name is one line");
  static_cast<void>(launch::address_in_hosts(input, "node1"));
  const auto used = launch::count_used_ports(input, 100, 199);
  require(used >= 0 && used <= 100, "no more ports are used than there are");
  report_on({}, software);
}

}  // namespace hvd::fuzz

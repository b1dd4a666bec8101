#include "launcher/wire/check_messages.h"

#include <cmath>

namespace hvd::launch {
namespace {

constexpr std::int32_t kMostPorts = 2 * 65536;  // those of IPv4 and of IPv6

bool is_port(std::int32_t port) {
  return port >= 0 && port <= 65535;
}

// Far from any overflow when two of them are subtracted: the years 1970 to 2116.
bool is_clock(const ClockMessage& m) {
  return m.unix_ns >= 0 && m.unix_ns <= INT64_MAX / 2;
}

bool is_system(const SystemSurvey& m) {
  return std::isfinite(m.processor_limit) && m.processor_limit >= 0 && m.processors >= 0 && is_port(m.first_port) &&
         is_port(m.last_port) && m.used_ports >= 0 && m.used_ports <= kMostPorts;
}

bool is_listening(const ListeningMessage& m) {
  return is_port(m.port) && (m.port != 0 || !m.error.empty());
}

bool is_probed(const ProbeResult& m) {
  return m.round_trip >= Duration::zero() && m.stream_time >= Duration::zero();
}

}  // namespace

std::string ClockMessage::encode() const {
  return encoded(*this);
}

Result<ClockMessage> ClockMessage::decode(std::string_view body) {
  return decoded<ClockMessage>(body, "Clock", is_clock);
}

std::string SurveyRequest::encode() const {
  return encoded(*this);
}

Result<SurveyRequest> SurveyRequest::decode(std::string_view body) {
  return decoded<SurveyRequest>(body, "AskSurvey");
}

std::string SystemSurvey::encode() const {
  return encoded(*this);
}

Result<SystemSurvey> SystemSurvey::decode(std::string_view body) {
  return decoded<SystemSurvey>(body, "System", is_system);
}

std::string SoftwareSurvey::encode() const {
  return encoded(*this);
}

Result<SoftwareSurvey> SoftwareSurvey::decode(std::string_view body) {
  return decoded<SoftwareSurvey>(body, "Software");
}

std::string ProbeRequest::encode() const {
  return encoded(*this);
}

Result<ProbeRequest> ProbeRequest::decode(std::string_view body) {
  return decoded<ProbeRequest>(body, "AskProbe");
}

std::string ListeningMessage::encode() const {
  return encoded(*this);
}

Result<ListeningMessage> ListeningMessage::decode(std::string_view body) {
  return decoded<ListeningMessage>(body, "Listening", is_listening);
}

std::string ProbeResult::encode() const {
  return encoded(*this);
}

Result<ProbeResult> ProbeResult::decode(std::string_view body) {
  return decoded<ProbeResult>(body, "Probed", is_probed);
}

}  // namespace hvd::launch

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

HVD_MESSAGE(ClockMessage, "Clock", is_clock)
HVD_MESSAGE(SurveyRequest, "AskSurvey")
HVD_MESSAGE(SystemSurvey, "System", is_system)
HVD_MESSAGE(SoftwareSurvey, "Software")
HVD_MESSAGE(ProbeRequest, "AskProbe")
HVD_MESSAGE(ListeningMessage, "Listening", is_listening)
HVD_MESSAGE(ProbeResult, "Probed", is_probed)

}  // namespace hvd::launch

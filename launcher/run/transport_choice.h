// Which transport reaches which host; the one place that decides it.
#pragma once

#include <cstdint>
#include <string>

#include "launcher/job/job_spec.h"

namespace hvd::launch {

enum class TransportKind : std::uint8_t { kLocal, kSsh, kRsh };

TransportKind choose_transport(const JobSpec& spec, const std::string& host);

// "local", "ssh", "rsh".
std::string transport_name(TransportKind kind);

}  // namespace hvd::launch

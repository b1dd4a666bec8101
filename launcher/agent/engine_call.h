// How an engine (mpirun) hands the launcher's words to the agents that it starts, one for each rank: whom to call on
// the command line, which others may see, and the secret in one environment variable. Both ends; pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/agent/messages.h"
#include "runtime/base/result.h"
#include "runtime/rendezvous/store.h"

namespace hvd::launch {

// 64 hex digits. It is of no use once all agents have called, and no rank ever has it.
inline constexpr const char* kCallSecretVariable = "HVD_CALL_SECRET";

// "AGENT call mpirun 10.0.0.1:4711 ...": what an engine executes as each rank.
std::vector<std::string> call_words(const std::string& agent_path, const std::string& engine,
                                    const std::vector<std::string>& addresses);

std::string secret_text(const JobSecret& secret);
Result<JobSecret> parse_secret(std::string_view text);

// From the variables that the engine sets for each rank.
Result<Seat> seat_from(const std::string& engine, const std::vector<std::string>& environment);

}  // namespace hvd::launch

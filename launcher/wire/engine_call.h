// These functions are how an engine hands the launcher's words to the agents that it starts. Whom to call stands on the
// command line, which others may see. The key that proves both ends comes in a variable (mpirun, jsrun), as a line of
// standard input (Slurm, and Spark's order), or in a file (Kubernetes). Both ends use them; they are pure, but for
// own_network_stack and read_call_secret.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/wire/messages.h"
#include "runtime/base/result.h"
#include "runtime/rendezvous/crypto.h"
#include "runtime/rendezvous/store.h"

namespace hvd::launch {

// What a call proves by, and how an agent knows its launcher. An engine may carry it in clear text (mpirun does): by
// the launcher's share whoever reads it can neither pose as the launcher nor read a session (handshake.h). He could
// call in an agent's place, before that does. It is of no use once all agents have called, and no rank ever has it.
struct CallKey {
  JobSecret secret{};
  KeyShare launcher{};
};
bool operator==(const CallKey& a, const CallKey& b);

// 128 hex digits.
inline constexpr const char* kCallSecretVariable = "HVD_CALL_SECRET";

// Where the launcher is to be called.
struct CallPlace {
  std::string stack;                   // its own_network_stack()
  std::vector<std::string> addresses;  // "10.0.0.1:4711"
};

// A word by which a process on the same network stack knows it: then addresses of this one are the launcher's too, and
// else those of another machine, if any. "-" where the system does not tell.
std::string own_network_stack();

// "AGENT call mpirun STACK 10.0.0.1:4711 ...": what an engine executes as each rank.
std::vector<std::string> call_words(const std::string& agent_path, const std::string& engine, const CallPlace& place);

std::string call_key_text(const CallKey& key);
Result<CallKey> parse_call_key(std::string_view text);

// Reads the secret alone, 64 hex digits, which both ends find in a file (Kubernetes). The file must be closed to
// others: kInvalid says what its owner is to change. The group may read it, since that is how a Secret's volume with an
// fsGroup looks.
Result<JobSecret> read_call_secret(const std::string& path);
// Whether an agent of this engine is called by such a file, and looks for the launcher by its name.
bool has_secret_file(const std::string& engine);

// What an agent finds as the first line of its standard input where the engine leaves that to us (Spark): the key, so
// that no environment has it, and the partition that it is. "128-HEX-DIGITS PARTITION COUNT". Later the end of this
// input means that the task which started the agent is over.
struct CallOrder {
  CallKey key;
  Seat seat;  // rank: the partition; size: how many there are
};
inline constexpr std::size_t kLongestOrder = 192;  // bytes, with its newline
Result<CallOrder> parse_order(std::string_view line);
// Whether an agent of this engine is given its order so.
bool has_order(const std::string& engine);

// Whether an agent of this engine finds its key alone as the first line of its standard input, which then ends.
bool has_key_at_input(const std::string& engine);

// The name by which the engine knows this node; empty: it has none of its own.
std::string node_name_from(const std::string& engine, const std::vector<std::string>& environment);
// Removes what the engine has set for the agent, and what a rank would take for a place of its own.
void leave_engine(const std::string& engine, std::vector<std::string>& environment);

// From the variables that the engine sets for each rank.
Result<Seat> seat_from(const std::string& engine, const std::vector<std::string>& environment);

}  // namespace hvd::launch

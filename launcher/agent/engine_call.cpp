#include "launcher/agent/engine_call.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "launcher/process/spawn.h"

namespace hvd::launch {
namespace {

struct SeatVariables {
  std::string_view engine;
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;
};
constexpr std::array<SeatVariables, 1> kEngines = {{{"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                                                     "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"}}};

Result<std::int32_t> number_in(const std::vector<std::string>& environment, const char* name) {
  const std::string text = value_in(environment, name);
  std::int32_t number = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failed != std::errc() || end != text.data() + text.size() || number < 0) {
    return Error(Code::kInvalid, std::string(name) + " is '" + text + "', expected a number");
  }
  return number;
}

}  // namespace

std::vector<std::string> call_words(const std::string& agent_path, const std::string& engine,
                                    const std::vector<std::string>& addresses) {
  std::vector<std::string> words = {agent_path, "call", engine};
  words.insert(words.end(), addresses.begin(), addresses.end());
  return words;
}

std::string secret_text(const JobSecret& secret) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const std::uint8_t byte : secret) {
    text += kDigits[byte >> 4U];
    text += kDigits[byte & 15U];
  }
  return text;
}

Result<JobSecret> parse_secret(std::string_view text) {
  JobSecret secret{};
  if (text.size() == 2 * secret.size()) {
    std::size_t read = 0;
    while (read < secret.size()) {
      const char* digits = text.data() + 2 * read;
      if (std::from_chars(digits, digits + 2, secret[read], 16).ptr != digits + 2) {
        break;
      }
      ++read;
    }
    if (read == secret.size()) {
      return secret;
    }
  }
  return Error(Code::kInvalid, std::string(kCallSecretVariable) + " holds no secret; only hvdrun starts this");
}

Result<Seat> seat_from(const std::string& engine, const std::vector<std::string>& environment) {
  const auto found = std::find_if(kEngines.begin(), kEngines.end(),
                                  [&engine](const SeatVariables& known) { return known.engine == engine; });
  if (found == kEngines.end()) {
    return Error(Code::kInvalid, "no such engine: '" + engine + "'");
  }
  Seat seat;
  HVD_TRY_ASSIGN(seat.rank, number_in(environment, found->rank));
  HVD_TRY_ASSIGN(seat.size, number_in(environment, found->size));
  HVD_TRY_ASSIGN(seat.local_rank, number_in(environment, found->local_rank));
  HVD_TRY_ASSIGN(seat.local_size, number_in(environment, found->local_size));
  return seat;
}

}  // namespace hvd::launch

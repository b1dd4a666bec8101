#include "runtime/abi/tuning_source.h"

#include <filesystem>
#include <fstream>
#include <iterator>

#include "runtime/base/contract.h"
#include "runtime/base/machine.h"
#include "runtime/core/tuning_table.h"

namespace hvd {
namespace {

constexpr std::size_t kMaxFileBytes = 64U << 10U;

Result<TuningTable> read_table(const std::string& source) {
  if (source.starts_with('{')) {
    return parse_tuning_table(source, contract::kTuning);
  }
  std::ifstream file(source, std::ios::binary);
  std::string text(kMaxFileBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  // Of a folder libc++, which is in the wheels, reads nothing and calls that the end of the file.
  std::error_code ignored;
  if ((!file.eof() && !file) || std::filesystem::is_directory(source, ignored)) {
    return Error(Code::kNotFound, std::string(contract::kTuning) + ": cannot read " + source +
                                      " on rank 0's host; hvdrun bench --tune " + source + " writes it");
  }
  if (text.size() > kMaxFileBytes) {
    return Error(Code::kInvalid,
                 source + ":1: no tuning table: it has more than " + std::to_string(kMaxFileBytes) + " bytes");
  }
  return parse_tuning_table(text, source);
}

}  // namespace

Result<void> apply_tuning(Config& config, Log& log) {
  if (config.tuning.empty() || !config.map.is_coordinator() || config.map.size == 1) {
    return {};
  }
  HVD_TRY_ASSIGN(const TuningTable table, read_table(config.tuning));
  const TunedPlace here = place_of(config.map, processor_name());
  const std::string name = config.tuning.starts_with('{') ? "its table" : config.tuning;
  if (table.place != here) {
    log.write(LogLevel::kWarning, std::string(contract::kTuning) + ": " + name + " was made for " +
                                      text_of(table.place) + "; this job has " + text_of(here) +
                                      "; it is ignored; make one for this placement with hvdrun bench --tune");
    return {};
  }
  config.engine.tuning = table.tuning;
  if (!config.engine.autotune.keeps_fusion) {
    config.engine.fusion_threshold_bytes = table.tuning.fusion_bytes;
  }
  log.write(LogLevel::kInfo, std::string(contract::kTuning) + ": " + name + " is in use");
  return {};
}

}  // namespace hvd

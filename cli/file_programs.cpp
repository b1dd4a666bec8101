#include "cli/file_programs.h"

namespace hvd::cli {

std::vector<launch::JobNodeFacts> facts_of(const std::vector<launch::NodeView>& views) {
  const auto addresses = launch::data_addresses(views);
  std::vector<launch::JobNodeFacts> facts;
  for (std::size_t node = 0; node < views.size(); ++node) {
    const auto& ready = views[node].ready;
    facts.push_back({addresses[node], ready.reserved_port > 0 ? std::to_string(ready.reserved_port) : "",
                     static_cast<int>(ready.gpus.size())});
  }
  return facts;
}

std::vector<launch::RankProgram> programs_of(const launch::JobRun& run,
                                             const std::vector<launch::JobNodeFacts>& facts) {
  std::vector<launch::RankProgram> programs;
  for (int rank = 0; rank < run.layout.size(); ++rank) {
    programs.push_back(
        {{"bash", "-c", launch::process_script(run, rank).value()}, launch::process_variables(run, facts, rank)});
  }
  return programs;
}

}  // namespace hvd::cli

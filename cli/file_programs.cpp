#include "cli/file_programs.h"

#include <map>
#include <utility>

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

launch::JobTexts texts_at(const launch::JobView& view, int rank) {
  const std::string& socket = view.of(rank).ready.socket_path;
  return launch::JobTexts(socket.substr(0, socket.rfind('/')));
}

launch::RankProgram bash_program(const std::string& script, launch::JobTexts& texts, std::size_t known,
                                 launch::EnvList env) {
  const std::string path = texts.add(script);
  const auto& files = texts.files();
  return {launch::bash_words(path), std::move(env), {files.begin() + static_cast<std::ptrdiff_t>(known), files.end()}};
}

std::vector<launch::RankProgram> programs_of(const launch::JobRun& run, const std::vector<launch::JobNodeFacts>& facts,
                                             const launch::JobView& view) {
  std::vector<launch::RankProgram> programs;
  std::map<int, launch::JobTexts> texts;  // by agent
  for (int rank = 0; rank < run.layout.size(); ++rank) {
    auto& own = texts.try_emplace(view.agents.node_of(rank).index, texts_at(view, rank)).first->second;
    const std::size_t known = own.files().size();
    programs.push_back(bash_program(launch::process_script(run, rank, own).value(), own, known,
                                    launch::process_variables(run, facts, rank)));
  }
  return programs;
}

}  // namespace hvd::cli

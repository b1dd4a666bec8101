#include "launcher/steps/file_programs.h"

#include <map>
#include <utility>

namespace hvd::launch {

std::vector<JobNodeFacts> facts_of(const std::vector<NodeView>& views, const std::vector<std::string>& interfaces) {
  const auto addresses = data_addresses(views, interfaces);
  std::vector<JobNodeFacts> facts;
  for (std::size_t node = 0; node < views.size(); ++node) {
    const auto& ready = views[node].ready;
    facts.push_back({addresses[node], ready.reserved_port > 0 ? std::to_string(ready.reserved_port) : "",
                     static_cast<int>(ready.gpus.size())});
  }
  return facts;
}

JobTexts texts_at(const JobView& view, int rank) {
  const std::string& socket = view.of(rank).ready.socket_path;
  return JobTexts(socket.substr(0, socket.rfind('/')));
}

RankProgram bash_program(const std::string& script, JobTexts& texts, std::size_t known, EnvList env) {
  const std::string path = texts.add(script);
  const auto& files = texts.files();
  return {bash_words(path), std::move(env), {files.begin() + static_cast<std::ptrdiff_t>(known), files.end()}};
}

std::vector<RankProgram> programs_of(const JobRun& run, const std::vector<JobNodeFacts>& facts, const JobView& view) {
  std::vector<RankProgram> programs;
  std::map<int, JobTexts> texts;  // by agent
  for (int rank = 0; rank < run.layout.size(); ++rank) {
    auto& own = texts.try_emplace(view.agents.node_of(rank).index, texts_at(view, rank)).first->second;
    const std::size_t known = own.files().size();
    programs.push_back(
        bash_program(process_script(run, rank, own).value(), own, known, process_variables(run, facts, rank)));
  }
  return programs;
}

}  // namespace hvd::launch

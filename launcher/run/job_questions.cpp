#include "launcher/run/job_questions.h"

#include <unistd.h>

#include <utility>

namespace hvd::launch {
namespace {

// Of a command's words so many characters are shown.
constexpr std::size_t kMostCommand = 400;

std::string line_of(const std::vector<std::string>& argv) {
  std::string line;
  for (const std::string& word : argv) {
    line += (line.empty() ? "" : " ") + word;
  }
  return line.substr(0, kMostCommand);
}

}  // namespace

void JobQuestions::listen() {
  if (job_.spec.live_dir.empty()) {
    return;
  }
  LiveJob self;
  self.id = job_.id;
  self.name = job_.spec.name;
  self.uuid = job_.spec.uuid;
  self.pid = ::getpid();
  self.size = job_.placement.size;
  self.command = line_of(job_.spec.argv);
  self.cwd = job_.spec.cwd;
  auto server = LiveServer::listen(job_.loop, LiveFolder(job_.spec.live_dir), std::move(self), job_.log);
  if (!server.ok()) {
    job_.log.write(LogLevel::kDebug, "hvdrun top and hvdrun stacks cannot find this job: " + server.error().message());
    return;
  }
  server_ = std::move(server).value();
  server_->on_question(LiveMessage::kAskStacks,
                       [this](LiveServer::CallerId caller, std::string_view body) -> Result<void> {
                         HVD_TRY_ASSIGN(const StacksQuestion question, StacksQuestion::decode(body));
                         answer_stacks(caller, question);
                         return {};
                       });
  status_.emplace(job_.loop, watch_, *server_);
  job_.log.write(LogLevel::kDebug, "this is job " + job_.id + ", as in: hvdrun top " + job_.id);
}

void JobQuestions::answer_stacks(LiveServer::CallerId caller, const StacksQuestion& question) {
  stacks_.ask(question.is_native, [this, caller](const std::vector<RankStacks>& stacks, int running) {
    if (!server_) {
      return;
    }
    server_->send(caller, LiveMessage::kStacks, StacksAnswer{running, stacks}.encode());
    server_->over(caller);
  });
}

void JobQuestions::stop() {
  status_.reset();
  server_.reset();
}

}  // namespace hvd::launch

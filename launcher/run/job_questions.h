// JobQuestions lets other commands of the same user ask a running job (launcher/live).
//
// A job that cannot listen runs nevertheless. Thread: loop only.
#pragma once

#include <memory>
#include <optional>

#include "launcher/live/live_server.h"
#include "launcher/run/job_parts.h"
#include "launcher/run/stack_rounds.h"
#include "launcher/samples/status_answers.h"

namespace hvd::launch {

class JobQuestions {
 public:
  JobQuestions(const JobParts& job, StackRounds& stacks, JobWatch& watch) : job_(job), stacks_(stacks), watch_(watch) {}
  JobQuestions(const JobQuestions&) = delete;
  JobQuestions& operator=(const JobQuestions&) = delete;

  // Begins to answer, if the job has a folder for that. Call it when the job has its id.
  void listen();
  // Nobody is answered any more.
  void stop();

 private:
  void answer_stacks(LiveServer::CallerId caller, const StacksQuestion& question);

  const JobParts& job_;
  StackRounds& stacks_;
  JobWatch& watch_;
  std::unique_ptr<LiveServer> server_;  // null: nobody can ask
  std::optional<StatusAnswers> status_;
};

}  // namespace hvd::launch

#include <chrono>
#include <cstdio>

#include "hvd/hvd.h"
#include "runtime/front/step_watch.h"

namespace hvd::front {
namespace {

// Ranks that disagree find that out together, so that others of the step are seldom late by more.
constexpr auto kPatience = std::chrono::seconds(2);

void leave_the_job(int waiting) {
  std::fprintf(stderr,
               "hvd: rank %d leaves the job: its step has failed, and %d collectives of it still wait for ranks whose "
               "step has failed too; hvd.shutdown() and hvd.init() on all ranks (hvd.elastic.run does) go on\n",
               hvd_rank(nullptr), waiting);
  hvd_shutdown();
}

}  // namespace

StepWatch& watch_of_steps(StepWatch::Numbers numbers) {
  // It is never destroyed, because a program may exit while its framework still runs.
  static auto* const watch = new StepWatch(kPatience, numbers, leave_the_job);
  return *watch;
}

}  // namespace hvd::front
